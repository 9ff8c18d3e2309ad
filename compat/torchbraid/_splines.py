"""Layers whose weights are splines in time, so that a deep network has few parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.func import functional_call

from ._blocks import Block
from .bsplines import BsplineBasis


class SplineLayer(nn.Module):
    """A layer whose weights are a linear combination of those of its control layers."""

    def __init__(self, controls: Sequence[nn.Module], coefficients: Sequence[float]) -> None:
        super().__init__()
        self.controls = nn.ModuleList(controls)
        self.coefficients = list(coefficients)

    @property
    def template(self) -> nn.Module:
        """The layer that is evaluated with the combined weights; its buffers are used."""
        return self.controls[0]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        parameters = [dict(control.named_parameters()) for control in self.controls]
        weights = {
            name: sum(factor * each[name] for factor, each in zip(self.coefficients, parameters, strict=True))
            for name in parameters[0]
        }
        return functional_call(self.template, weights, args, kwargs)


def spline_makers(
    makers: Sequence[tuple[Block, bool]], nsplines: int, degree: int, tf: float
) -> list[tuple[Block, bool]]:
    """Returns factories of spline layers. All layers share ``nsplines`` control layers.

    Raises ValueError if the layers come from several blocks or the degree does not fit.
    """
    blocks = {id(make) for make, _ in makers}
    if len(blocks) > 1:
        raise ValueError("torchbraid (weft): spline weights need layers of a single block, got a list of blocks")
    basis = BsplineBasis(nsplines, degree, tf)
    make, alone = makers[0]
    controls: list[nn.Module] = []

    def layer(number: int) -> nn.Module:
        if not controls:
            controls.extend(make() for _ in range(nsplines))
        coefficients, first = basis.eval(number * tf / len(makers))
        return SplineLayer(controls[first : first + len(coefficients)], coefficients)

    return [(lambda number=number: layer(number), alone) for number in range(len(makers))]
