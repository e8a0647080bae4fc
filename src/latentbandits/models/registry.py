"""The kinds of model that can be saved, and each as named arrays; models in models too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentbandits.models.arms.bernoulli import BernoulliArms
from latentbandits.models.arms.categorical import CategoricalArms
from latentbandits.models.arms.exponential import ExponentialArms
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.arms.gaussian_unknown_noise import GaussianArmsUnknownNoise
from latentbandits.models.arms.poisson import PoissonArms
from latentbandits.models.composed.ensemble import Ensemble
from latentbandits.models.composed.function import FunctionModel
from latentbandits.models.composed.markov import Markov
from latentbandits.models.composed.particles import Particles
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.models.linear.gaussian_unknown_noise import LinearGaussianUnknownNoise
from latentbandits.models.linear.logistic import LogisticLinear
from latentbandits.models.protocol import Model

Arrays = Mapping[str, NDArray[Any]]

KINDS: Mapping[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        GaussianArms,
        GaussianArmsUnknownNoise,
        BernoulliArms,
        PoissonArms,
        ExponentialArms,
        CategoricalArms,
        LinearGaussian,
        LinearGaussianUnknownNoise,
        LogisticLinear,
        Ensemble,
        Markov,
    )
}

_FUNCTIONS = (FunctionModel, Particles)


def to_arrays(model: Any) -> dict[str, NDArray[Any]]:
    """Every field of a model. Those of a model inside it are named `field:kind/name`, and of the
    i-th of several `field:i:kind/name`.

    >>> from latentbandits import GaussianArms
    >>> sorted(to_arrays(Markov(GaussianArms([[1.0]], noise=0.5), [[1.0]])))[:2]
    ['model:GaussianArms/means', 'model:GaussianArms/noise']
    """
    kind = type(model).__name__
    if isinstance(model, _FUNCTIONS):
        raise TypeError(
            f"a {kind} is made of functions, and functions cannot be saved: save what they are "
            "made of (their arrays, or the fitted estimator by its own library), and make the "
            f"{kind} again after loading that"
        )
    if KINDS.get(kind) is not type(model):
        raise TypeError(f"cannot save a {kind}; the kinds that can be saved are {', '.join(KINDS)}")
    arrays: dict[str, NDArray[Any]] = {}
    for field in fields(model):
        value = getattr(model, field.name)
        if isinstance(value, (np.ndarray, int, float)):
            arrays[field.name] = np.asarray(value)
        elif isinstance(value, tuple):
            for i, part in enumerate(value):
                arrays |= _prefixed(f"{field.name}:{i}", part)
        else:
            arrays |= _prefixed(field.name, value)
    return arrays


def from_arrays(kind: str, arrays: Arrays) -> Model:
    """The model that `to_arrays` took apart."""
    values: dict[str, Any] = {}
    parts: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        if "/" in name:
            prefix, _, rest = name.partition("/")
            parts.setdefault(prefix, {})[rest] = array
        else:
            values[name] = array.item() if array.ndim == 0 else array
    several: dict[str, dict[int, Model]] = {}
    for prefix, own in parts.items():
        field, *index, inner = prefix.split(":")
        part = from_arrays(inner, own)
        if index:
            several.setdefault(field, {})[int(index[0])] = part
        else:
            values[field] = part
    for field, found in several.items():
        values[field] = [found[i] for i in sorted(found)]
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is not a kind of model")
    model: Model = KINDS[kind](**values)
    return model


def _prefixed(prefix: str, part: Any) -> dict[str, NDArray[Any]]:
    inner = f"{prefix}:{type(part).__name__}/"
    return {inner + name: array for name, array in to_arrays(part).items()}
