"""Builders of related policies whose arguments are not literals: a subspace, a shape."""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np

from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits_related.proball import ProBALL
from latentbandits_related.rank1 import Rank1Elim, Rank1ElimKL


def build_proball(
    model: LinearGaussian,
    horizon: int,
    rank: int | None = None,
    error: float | None = None,
    combine: Literal["switch", "min"] = "min",
    bound: float | None = None,
    length: float = 1.0,
    scale: float = 1.0,
) -> ProBALL:
    """Build ProBALL in the subspace of a Gaussian prior with one state (see `learn_subspace`).

    The prior's covariance is U diag(e) U' + rest I. `rank` None counts the eigenvalues above the
    rest, and `error` None follows from the rest: error^2 = rest (d - k) / trace(e). `bound` None is
    the root mean square length of the weights.
    """
    if not isinstance(model, LinearGaussian) or model.n_states != 1 or model.n_sessions is not None:
        raise ValueError(
            "ProBALL needs a LinearGaussian with one state, such as learn_subspace(...).prior("
            f"noise); got {type(model).__name__} with {model.n_states} states"
        )
    values, vectors = np.linalg.eigh(model.covariances[0])
    values, vectors = values[::-1], vectors[:, ::-1]
    rest = max(float(values[-1]), 0.0)
    k = int((values > rest + 1e-9 * values[0]).sum()) if rank is None else rank
    if not 1 <= k <= len(values):
        raise ValueError(f"rank must be from 1 to {len(values)}, the number of features; got {k}")
    kept = float((values[:k] - rest).sum())
    if error is None:
        error = min(float(np.sqrt(rest * (len(values) - k) / kept)), 1.0) if kept > 0 else 1.0
    if bound is None:
        bound = float(np.sqrt(values.sum() + (model.weights[0] ** 2).sum()))
    return ProBALL(
        vectors[:, :k],
        error,
        float(model.noise),
        horizon,
        combine,
        bound=bound,
        length=length,
        scale=scale,
    )


def _build_rank1(
    kind: type[Rank1Elim] | type[Rank1ElimKL],
    horizon: int,
    n_actions: int | None = None,
    n_rows: int | None = None,
    n_columns: int | None = None,
) -> Rank1Elim | Rank1ElimKL:
    """Build a policy on `n_rows` x `n_columns` actions; one may follow from their number."""
    if n_actions is not None and n_columns is None and n_rows:
        n_columns = n_actions // n_rows
    if n_actions is not None and n_rows is None and n_columns:
        n_rows = n_actions // n_columns
    if n_rows is None or n_columns is None:
        raise ValueError(
            f"{kind.__name__} needs the numbers of rows and columns that make its actions: "
            f"{kind.__name__}(n_rows=..., n_columns=...)"
        )
    if n_actions is not None and n_rows * n_columns != n_actions:
        raise ValueError(
            f"{n_rows} rows x {n_columns} columns are {n_rows * n_columns} actions; there are "
            f"{n_actions}"
        )
    return kind(n_rows, n_columns, horizon)


build_rank1elim = partial(_build_rank1, Rank1Elim)
build_rank1elimkl = partial(_build_rank1, Rank1ElimKL)
