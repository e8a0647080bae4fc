"""A mean with its standard error."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class Estimate(NamedTuple):
    """A mean over runs and its standard error.

    >>> print(Estimate(28.414, 0.333), Estimate(1234.5, 21.0), sep=", ")
    28.41 ±0.33, 1234 ±21
    """

    mean: float
    stderr: float

    def __str__(self) -> str:
        return format(self)

    def __format__(self, sign: str) -> str:
        """Show two digits of the error and as many of the mean; "too few runs" if there is none.

        `sign` "+" shows that of the mean.

        >>> f"{Estimate(0.05841, 0.0057):+}"
        '+0.0584 ±0.0057'
        """
        if math.isnan(self.mean):
            return "too few runs"
        if not (math.isfinite(self.stderr) and self.stderr > 0):
            return f"{self.mean:{sign}.4g}"
        digits = max(0, 1 - math.floor(math.log10(self.stderr)))
        return f"{self.mean:{sign}.{digits}f} ±{self.stderr:.{digits}f}"

    @classmethod
    def from_values(cls, values: FloatArray, n_groups: int = 1) -> Estimate:
        """Estimate the mean of `values`, which are `n_groups` consecutive groups of equal size.

        Variance between groups beyond that of their members increases the standard error.

        >>> print(Estimate.from_values(np.array([1.0, 2.0, 3.0, 4.0]), n_groups=2))
        2.5 ±1.0
        """
        groups = values.reshape(n_groups, -1)
        n = groups.shape[1]
        within = float(groups.var(axis=1, ddof=1).mean()) / values.size if n > 1 else math.nan
        if n_groups == 1:
            return cls(float(values.mean()), math.sqrt(within))
        between = float(groups.mean(axis=1).var(ddof=1)) / n_groups
        return cls(float(values.mean()), math.sqrt(max(between, within) if n > 1 else between))
