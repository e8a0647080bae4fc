"""The registry of models: every model class by its name.

It holds the models of `families`, the models added by `register`, and the models that other
packages declare under the entry point `latentbandits.models`. Saving and loading, the command
line, learning, the table in the documentation, the conformance tests and the experiment `families`
read it.
"""

from __future__ import annotations

from inspect import isclass
from typing import Any, TypeVar

from latentbandits.models import families
from latentbandits.models.arms.conjugate import Learnable
from latentbandits.models.protocol import StationaryModel
from latentbandits.names import Registry, one_of

ModelClass = type[Any]
ModelClassT = TypeVar("ModelClassT", bound=ModelClass)

ENTRY_POINTS = "latentbandits.models"

_own = {name: kind for name, kind in vars(families).items() if isclass(kind)}
_registry: Registry[ModelClass] = Registry("model", ENTRY_POINTS, _own)


def register(kind: ModelClassT) -> ModelClassT:
    """Add a model class, so that it can be saved, loaded, served and simulated by its name.

    `kind` is a class that satisfies the protocol `Model` or `KnownModel`. To be saved it must be
    a dataclass whose fields are also the names of its constructor's arguments, and whose values
    are arrays, numbers, models or tuples of models. The name is the class's. It can be used as a
    decorator. A class attribute `summary` puts it into the table of models, and a class method
    `random` into the experiment `families`.

    >>> from dataclasses import dataclass
    >>> from latentbandits import GaussianArms
    >>> @register
    ... @dataclass(frozen=True, eq=False, init=False)
    ... class MyArms(GaussianArms):
    ...     '''Gaussian arms under a name of their own.'''
    >>> find("MyArms") is MyArms
    True
    >>> unregister("MyArms")
    """
    if not isclass(kind):
        raise TypeError(f"register takes a class; got {kind!r}")
    _registry.add(kind.__name__, kind)
    return kind


def unregister(name: str) -> None:
    """Remove a model class that was added by `register`."""
    _registry.remove(name)


def added() -> tuple[ModelClass, ...]:
    """Return the model classes that calls of `register` added in this process alone."""
    return tuple(_registry.added.values())


def find(name: str) -> ModelClass:
    """Return the model class of this name; ValueError suggests the nearest name if there is none.

    >>> find("PoissonArms").__name__
    'PoissonArms'
    """
    return _registry.find(name)


def kinds() -> dict[str, ModelClass]:
    """Return all model classes by name."""
    return _registry.all()


# Reward families.


def reward_families() -> dict[str, type[Learnable]]:
    """Return the reward families that `fit` can learn, by name.

    >>> sorted(reward_families())[:3]
    ['bernoulli', 'categorical', 'exponential']
    """
    models = [kind for kind in kinds().values() if issubclass(kind, StationaryModel)]
    families = [kind.reward_family() for kind in models]
    return {family.family_name: family for family in families if family is not None}


def reward_family(name: str) -> type[Learnable]:
    """Return a reward family; ValueError suggests the nearest name if there is none."""
    known = reward_families()
    return known[one_of("reward family", name, known)]
