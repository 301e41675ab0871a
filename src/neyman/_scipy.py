"""SciPy's special functions and factorisations, loaded at the first call.

SciPy takes longer to import than all of neyman; scripts that only parse arguments should not pay for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


def expit(x: Any) -> Float:
    """Return 1 / (1 + exp(-x))."""
    from scipy import special  # noqa: PLC0415

    return np.asarray(special.expit(x), dtype=np.float64)


def logit(p: Any) -> Float:
    """Return log(p / (1 - p))."""
    from scipy import special  # noqa: PLC0415

    return np.asarray(special.logit(p), dtype=np.float64)


def gammaln(x: Any) -> Float:
    """Return log |Gamma(x)|."""
    from scipy import special  # noqa: PLC0415

    return np.asarray(special.gammaln(x), dtype=np.float64)


def cholesky(matrix: Float) -> Float:
    """Return the lower Cholesky factor of a finite positive definite matrix; LinAlgError if it is not."""
    from scipy import linalg  # noqa: PLC0415

    return np.asarray(linalg.cholesky(matrix, lower=True, check_finite=False), dtype=np.float64)


def cholesky_inverse(factor: Float) -> Float:
    """Return the inverse of L L' for a lower factor L, in a third of the time that solving for it takes."""
    from scipy import linalg  # noqa: PLC0415

    lower = np.tril(linalg.lapack.dpotri(factor, lower=1)[0])
    return np.asarray(lower + np.tril(lower, -1).T, dtype=np.float64)


def cholesky_solve(factor: Float, right: Float) -> Float:
    """Return the solution of (L L') x = right for a lower factor L."""
    from scipy import linalg  # noqa: PLC0415

    return np.asarray(linalg.cho_solve((factor, True), right, check_finite=False), dtype=np.float64)
