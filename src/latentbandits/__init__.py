"""Latent bandits: learn offline who your users can be, find out online which one this is.

>>> from latentbandits import GaussianArms, mmTS
>>> import numpy as np
>>> policy = mmTS(GaussianArms(means=[[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1))
>>> belief, rng = policy.init(n_sessions=1), np.random.default_rng(0)
>>> decision = policy.decide(belief, None, rng)
>>> belief = policy.update(belief, None, decision, reward=[0.9])
"""

from typing import TYPE_CHECKING, Any

from latentbandits.lazy import lazy_exports

if TYPE_CHECKING:
    from latentbandits.environments import Population as Population
    from latentbandits.evaluation.evaluate import evaluate as evaluate
    from latentbandits.evaluation.reading import read_decisions as read_decisions
    from latentbandits.learning.fitting import fit as fit
    from latentbandits.models import ArtefactError as ArtefactError
    from latentbandits.models import load as load
    from latentbandits.models import save as save
    from latentbandits.models.clicks import Cascade as Cascade
    from latentbandits.models.clicks import Each as Each
    from latentbandits.models.clicks import Positions as Positions
    from latentbandits.models.families import *  # noqa: F403
    from latentbandits.models.visit import Visit as Visit
    from latentbandits.policies import *  # noqa: F403
    from latentbandits.simulation.simulate import simulate as simulate
    from latentbandits.simulation.tune import tune as tune

__version__ = "0.1.0"

_MODULES = {
    "ArtefactError": "latentbandits.models",
    "load": "latentbandits.models",
    "save": "latentbandits.models",
    "evaluate": "latentbandits.evaluation",
    "fit": "latentbandits.learning",
    "read_decisions": "latentbandits.evaluation.reading",
    "simulate": "latentbandits.simulation",
    "tune": "latentbandits.simulation",
    "Cascade": "latentbandits.models.clicks",
    "Each": "latentbandits.models.clicks",
    "Population": "latentbandits.environments",
    "Positions": "latentbandits.models.clicks",
    "Visit": "latentbandits.models.visit",
}
_COLLECTIONS = ("latentbandits.policies", "latentbandits.models.families")
_lazy, __dir__ = lazy_exports(__name__, _MODULES, *_COLLECTIONS)


def __getattr__(name: str) -> Any:
    try:
        return _lazy(name)
    except AttributeError:
        from latentbandits.policies.registry import RELATED

        if name in RELATED | {"GroupedLinUCB", "PerUser", "fit_transition_pairs", "learn_subspace"}:
            raise ImportError(
                f"{name} is in the package latentbandits-related: install it, then "
                f"`from latentbandits_related import {name}`"
            ) from None
        raise
