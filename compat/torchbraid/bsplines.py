"""B-splines in time: the basis of weights that vary smoothly along the network."""

from __future__ import annotations


class BsplineBasis:
    """``nsplines`` B-splines of a degree over [0, Tfinal], with equidistant knots.

    Raises ValueError if the degree does not fit the number of splines.
    """

    def __init__(self, nsplines: int, degree: int, Tfinal: float) -> None:
        if degree < 0 or nsplines <= degree:
            raise ValueError(
                f"torchbraid (weft): expected more splines than their degree, got {nsplines} splines of degree {degree}"
            )
        self.nsplines = nsplines
        self.degree = degree
        self.Tf = Tfinal
        self.nKnots = nsplines - degree + 1
        self.dknots = Tfinal / (self.nKnots - 1)

    def eval(self, time: float) -> tuple[list[float], int]:
        """Returns the values of the splines k, k + 1, ..., k + degree at a time, and k; all others are zero there."""
        position = time / self.dknots
        interval = min(int(position + 1e-9), self.nKnots - 2)
        offset = position - interval
        values = [1.0]
        for degree in range(1, self.degree + 1):  # the recursion of Cox and de Boor, for equidistant knots
            previous, values = values, [0.0] * (degree + 1)
            for number, value in enumerate(previous):
                rising = (offset + degree - 1 - number) / degree
                values[number] += (1.0 - rising) * value
                values[number + 1] += rising * value
        return values, interval
