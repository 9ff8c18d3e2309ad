"""What ``weft report`` and ``weft compare`` build their pages from: HTML that always escapes, charts as inline SVG."""
