// Shows a vertical line at the pointer and the values of the curves there, from the data attributes of the chart.
for (const chart of document.querySelectorAll('svg[data-series]')) {
  const series = JSON.parse(chart.dataset.series), box = JSON.parse(chart.dataset.box);
  const cross = chart.querySelector('.cross'), readout = chart.parentElement.querySelector('.readout');
  const show = value => value === null ? 'not finite' : Number(value.toPrecision(5)) + (box.unit || '');
  chart.addEventListener('pointermove', event => {
    const frame = chart.getBoundingClientRect();
    const x = (event.clientX - frame.left) / frame.width * chart.viewBox.baseVal.width;
    const step = box.low + (x - box.left) / (box.right - box.left) * (box.high - box.low);
    let nearest = null;
    for (const { points } of series) for (const point of points)
      if (nearest === null || Math.abs(point[0] - step) < Math.abs(nearest - step)) nearest = point[0];
    if (nearest === null) return;
    const at = box.left + (nearest - box.low) / (box.high - box.low) * (box.right - box.left);
    cross.setAttribute('x1', at); cross.setAttribute('x2', at); cross.style.visibility = 'visible';
    const values = series.map(({ name, points }) => [name, points.find(point => point[0] === nearest)]);
    readout.textContent = `${box.axis} ${nearest}: ` +
      values.filter(([, point]) => point).map(([name, point]) => `${name} ${show(point[1])}`).join(', ');
  });
  chart.addEventListener('pointerleave', () => { cross.style.visibility = 'hidden'; readout.textContent = ''; });
}
