"""torchbraid.mgopt on top of weft.multilevel."""
