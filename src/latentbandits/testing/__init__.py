"""Conformance checks to call from your own tests: of policies, models, environments, stores,
learners and engines.

>>> from latentbandits import UCB1
>>> check_policy(UCB1(n_actions=3), n_actions=3)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentbandits.lazy import lazy_exports
from latentbandits.testing.environments import check_environment
from latentbandits.testing.models import check_model
from latentbandits.testing.policies import check_policy

if TYPE_CHECKING:
    from latentbandits.testing.learners import check_engine, check_learner
    from latentbandits.testing.stores import check_store

__all__ = [
    "check_engine",
    "check_environment",
    "check_learner",
    "check_model",
    "check_policy",
    "check_store",
]


__getattr__, __dir__ = (
    lazy_exports(  # they need the extras `serving` and `learning`, the others do not
        __name__,
        {
            "check_engine": "latentbandits.testing.learners",
            "check_learner": "latentbandits.testing.learners",
            "check_store": "latentbandits.testing.stores",
        },
    )
)
