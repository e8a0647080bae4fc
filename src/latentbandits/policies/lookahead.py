"""Optimal play for a few more observations, for small problems."""

from __future__ import annotations

from dataclasses import dataclass, field

from latentbandits.models.checks import positive_count
from latentbandits.models.protocol import Model
from latentbandits.policies.knowledge_gradient import Planning


@dataclass(frozen=True, eq=False)
class mLookahead(Planning):
    """Play optimally as if only the next `steps` rewards were learned from (receding horizon).

    Exact for rewards with few values. The belief is the joint one of mmTS; for a model that is
    certain it is that of mTS. A decision looks at (actions x outcomes) ^ steps beliefs, and more
    than `planning.MOST_BELIEFS` are refused.

    Args:
        model: a model of latent states.
        steps: number of rewards that are planned for.
        horizon: number of rounds of a session.

    >>> import numpy as np
    >>> from latentbandits.models import BernoulliArms
    >>> model = BernoulliArms.from_means([[0.9, 0.5], [0.1, 0.5]], 0.05, state_prior=[0.3, 0.7])
    >>> policy = mLookahead(model, horizon=30)
    >>> policy.decide(policy.init(), None, np.random.default_rng(0)).action  # worth a try
    array([0])
    """

    model: Model
    steps: int = 2
    horizon: int = None  # type: ignore[assignment]  # needed, and last as in the documentation
    _steps: int = field(default=2, init=False, repr=False)
    _belief_model: Model = field(init=False, repr=False)

    def __post_init__(self) -> None:
        positive_count("steps", self.steps)
        object.__setattr__(self, "_belief_model", self.model)
        object.__setattr__(self, "_steps", self.steps)
        self._check()


def build_lookahead(model: Model, horizon: int, steps: int = 2) -> mLookahead:
    """Return the policy of the registry, which needs a horizon."""
    return mLookahead(model, steps, horizon)
