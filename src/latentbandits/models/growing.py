"""Catalogues that change: a model with actions added at the end, and actions that are retired.

Actions that a model has keep their places, so that the log of a session means the same to the
grown model. A new action of a model of arms is a prior of its mean reward in every state. A new
action of a linear model is a vector v ~ N(v_hat, C): its reward in state s then differs from
v_hat' theta_s by an offset of variance

    q[s] = w_s' C w_s + tr(C Sigma_s),        theta_s ~ N(w_s, Sigma_s).

The offset is one more feature: its weight has the prior N(0, tau[s]^2), and its value for the new
action is g, so that the action's reward variance grows by g^2 tau[s]^2 = q[s] on average over the
states. No other action has a value there, so that a reward for one new action says nothing about
the offset of another. The cost of a session grows with the square of the number of coordinates:
beyond `MOST_OFFSETS`, the vectors of further new actions are taken as certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from latentbandits.models.artefacts import Catalogue
from latentbandits.models.attributes.parts import parts_of, with_parts
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.composed.ensemble import Ensemble
from latentbandits.models.composed.markov import Markov
from latentbandits.models.protocol import Growable, with_defaults

OFFSETS = 4
"""Coordinates for the offsets of actions whose vectors are uncertain, which are added at a time."""

MOST_OFFSETS = 32
"""Largest number of such coordinates."""


def add_arms(
    model: Any,
    catalogue: Catalogue,
    ids: Sequence[str],
    means: FloatArray,
    variances: FloatArray,
    names: Sequence[str] | None = None,
) -> tuple[Any, Catalogue]:
    """Return a model of arms and its catalogue with `m` more actions at the end.

    `means` and `variances` of their mean rewards are `(n_states, m)`, in the units of the model
    that a transform wraps.

    >>> from latentbandits import GaussianArms
    >>> model, catalogue = GaussianArms([[0.9], [0.2]], noise=0.5), Catalogue(["a"])
    >>> bigger, both = add_arms(model, catalogue, ["b"], np.array([[0.1], [0.8]]), np.ones((2, 1)))
    >>> both.ids, bigger.means.tolist()
    (('a', 'b'), [[0.9, 0.1], [0.2, 0.8]])
    """
    longer = catalogue.longer(ids, names)
    return _with_arms(model, np.asarray(means, float), np.asarray(variances, float)), longer


def add_vectors(
    model: Any,
    catalogue: Catalogue,
    ids: Sequence[str],
    vectors: FloatArray,
    covariances: FloatArray | None = None,
    names: Sequence[str] | None = None,
) -> tuple[Any, Catalogue]:
    """Return a linear model and its catalogue with `m` more actions at the end.

    `vectors` are `(m, d)` with d the features of an action without offsets, `covariances`
    `(m, d, d)`; None: the vectors are certain. Vectors beyond `MOST_OFFSETS` are always certain.

    >>> from latentbandits import LinearGaussian
    >>> model = LinearGaussian([[1.0]], noise=0.5, covariances=[[[0.5]]])
    >>> wide, both = add_vectors(model, Catalogue(["a"], features=[[2.0]]), ["b"],
    ...                          np.array([[3.0]]), np.array([[[0.2]]]))
    >>> mean, variance = wide.posterior_rewards(wide.parameters(1), both.context(["b"]))
    >>> float(mean.item()), round(variance.item(), 3)  # 9 * 0.5 + 0.2 * (1 + 0.5)
    (3.0, 4.8)
    """
    catalogue.check_new(ids)
    if catalogue.features is None:
        raise ValueError("this catalogue has no features: its model is one of arms")
    vectors = np.asarray(vectors, np.float64)
    width = catalogue.features.shape[1] - catalogue.n_offsets
    if vectors.shape != (len(ids), width):
        raise ValueError(f"vectors must be {(len(ids), width)}; got {vectors.shape}")
    if covariances is None:
        return model, catalogue.longer(ids, names, _plain_rows(model, catalogue, vectors))
    at = offset_place(with_defaults(model).untransformed, width)
    free = _free_offsets(catalogue, at)
    while len(free) < len(ids) and catalogue.n_offsets + OFFSETS <= MOST_OFFSETS:
        model, catalogue = with_offsets(model, catalogue, covariances.mean(axis=0))
        free = _free_offsets(catalogue, at)
    rows = _plain_rows(model, catalogue, vectors)
    inner = with_defaults(model).untransformed
    prior = np.exp(inner.log_state_prior[0])
    unit = float(prior @ (inner.covariances[:, at, at] * with_defaults(inner).covariance_units))
    own = free[: len(ids)]
    wanted = _offset_variance(inner, covariances[: len(own)], at) @ prior
    rows[np.arange(len(own)), own] = np.sqrt(wanted / unit) if unit > 0 else 0.0
    return model, catalogue.longer(ids, names, rows)


def add_average(
    model: Any, catalogue: Catalogue, ids: Sequence[str], names: Sequence[str] | None = None
) -> tuple[Any, Catalogue]:
    """Return model and catalogue with new actions that have no known attributes or rewards.

    A new action has the mean of the average action in each state. Its variance is the variance
    between actions plus the average prior variance of an action.

    >>> from latentbandits import GaussianArms
    >>> model = GaussianArms([[1.0, 3.0]], noise=0.5, spread=1.0)
    >>> add_average(model, Catalogue(["a", "b"]), ["c"])[0].spread.round(3)
    array([[1.   , 1.   , 1.414]])
    """
    if isinstance(model, Markov):
        inner, catalogue = add_average(model.model, catalogue, ids, names)
        return _rebuilt(model, model=inner), catalogue
    if isinstance(model, Ensemble):
        grown = [add_average(member, catalogue, ids, names) for member in model.models]
        return _rebuilt(model, models=[member for member, _ in grown]), grown[0][1]
    known = [i for i, name in enumerate(catalogue.ids) if name not in catalogue.retired]
    if catalogue.features is None:
        inner = with_defaults(model).untransformed
        mean, variance = inner.posterior_rewards(inner.parameters(1), None)
        mean, variance = mean[0][:, known], variance[0][:, known]
        wide = variance.mean(axis=1) + mean.var(axis=1)
        shape = (inner.n_states, len(ids))
        return add_arms(
            model,
            catalogue,
            ids,
            np.broadcast_to(mean.mean(axis=1)[:, None], shape),
            np.broadcast_to(wide[:, None], shape),
            names,
        )
    vectors_of_actions = plain_features(model, catalogue)[known]
    covariance = np.atleast_2d(np.cov(vectors_of_actions.T, bias=True))
    vectors = np.repeat(vectors_of_actions.mean(axis=0)[None], len(ids), axis=0)
    return add_vectors(
        model, catalogue, ids, vectors, np.repeat(covariance[None], len(ids), axis=0), names
    )


def with_offsets(model: Any, catalogue: Catalogue, covariance: FloatArray) -> tuple[Any, Catalogue]:
    """Return a linear model with `OFFSETS` more coordinates for offsets of uncertain vectors.

    The first new coordinates have, in each state, the prior variance of an action whose vector has
    this `covariance` (d, d); further coordinates have the same variance. Actions of the model have
    zeros in the new coordinates, so that their expected rewards stay the same.
    """
    assert catalogue.features is not None
    inner = with_defaults(model).untransformed
    n_offsets = catalogue.n_offsets
    first = offset_place(inner, catalogue.features.shape[1] - n_offsets)
    at = first + n_offsets
    if n_offsets:
        variance = inner.covariances[:, first, first]
    else:
        tau = _offset_variance(inner, covariance[None], at)[0]  # (S,)
        if not (tau > 0).all():
            tau = np.maximum(tau, max(1e-12, 1e-9 * float(tau.max(initial=0.0))))
        variance = tau / with_defaults(inner).covariance_units
    new = [at] * OFFSETS
    weights = np.insert(inner.weights, new, 0.0, axis=1)
    wide = np.insert(np.insert(inner.covariances, new, 0.0, axis=1), new, 0.0, axis=2)
    for k in range(at, at + OFFSETS):
        wide[:, k, k] = variance
    grown = _rebuilt(inner, weights=weights, covariances=wide)
    rows = np.insert(catalogue.features, new, 0.0, axis=1)
    wider = Catalogue(catalogue.ids, catalogue.names, rows, catalogue.retired, n_offsets + OFFSETS)
    return _wrapped(model, grown), wider


def _free_offsets(catalogue: Catalogue, at: int) -> IntArray:
    """Return the features, of the offsets that begin at `at`, in which every action has a zero."""
    assert catalogue.features is not None
    offsets = catalogue.features[:, at : at + catalogue.n_offsets]
    return at + np.flatnonzero(~offsets.any(axis=0))


def plain_features(model: Any, catalogue: Catalogue) -> FloatArray:
    """Return the features of every action without offsets, `(n_actions, d)`."""
    assert catalogue.features is not None
    n = catalogue.n_offsets
    if n == 0:
        return catalogue.features
    at = offset_place(with_defaults(model).untransformed, catalogue.features.shape[1] - n)
    return np.delete(catalogue.features, np.arange(at, at + n), axis=1)


def _plain_rows(model: Any, catalogue: Catalogue, vectors: FloatArray) -> FloatArray:
    """Return `vectors` with zeros for the offsets."""
    at = offset_place(with_defaults(model).untransformed, vectors.shape[1])
    return np.insert(vectors, [at] * catalogue.n_offsets, 0.0, axis=1)


def offset_place(inner: Any, width: int) -> int:
    """Return where the offsets stand: at the end, but before a known offset in log-odds."""
    return width - 1 if with_defaults(inner).offset else width


def _offset_variance(inner: Any, covariances: FloatArray, at: int) -> FloatArray:
    """Return w_s' C w_s + tr(C Sigma_s) of every covariance C and state, `(m, n_states)`.

    A known offset in log-odds, the last feature of a clicks model, adds its own variance.
    """
    described = with_defaults(inner)
    units = described.covariance_units[:, None, None]
    plain = covariances[:, :at, :at]
    second = np.einsum("si,sj->sij", inner.weights[:, :at], inner.weights[:, :at])
    second = second + inner.covariances[:, :at, :at] * units
    total: FloatArray = np.einsum("mij,sij->ms", plain, second)
    if described.offset:
        total = total + covariances[:, at, at][:, None]
        total += 2 * np.einsum("mi,si->ms", covariances[:, :at, at], inner.weights[:, :at])
    return np.maximum(total, 0.0)


def _wrapped(model: Any, grown: Any) -> Any:
    return grown if with_defaults(model).untransformed is model else _rebuilt(model, model=grown)


def _with_arms(model: Any, means: FloatArray, variances: FloatArray) -> Any:
    inner = with_defaults(model).untransformed
    if inner is not model:
        grown = _with_arms(inner, means, variances)
        smearing = model.smearing
        if smearing.ndim == 1:
            more = np.full(means.shape[1], smearing.mean())
            smearing = np.concatenate([smearing, more])
        return _rebuilt(model, model=grown, smearing=smearing)
    if not isinstance(model, Growable):
        raise ValueError(f"actions cannot be added to a {type(model).__name__}")
    return with_parts(model.with_actions(means, variances), **parts_of(model))


def _rebuilt(model: Any, /, **changes: Any) -> Any:
    values = {field.name: getattr(model, field.name) for field in fields(model)}
    grown = type(model)(**(values | changes))
    return with_parts(grown, **{n: p for n, p in parts_of(model).items() if n != "encoder"})
