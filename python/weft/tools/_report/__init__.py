"""HTML pages of ``weft report`` and ``weft compare``: escaped markup, and charts as inline SVG."""
