"""Conformance checks to call from your own tests: of policies, models, environments, stores,
learners and engines.

>>> from latentbandits import UCB1
>>> check_policy(UCB1(n_actions=3), n_actions=3)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name == "check_store":  # needs the extra `serving`, the others do not
        from latentbandits.testing.stores import check_store

        return check_store
    if name in ("check_engine", "check_learner"):  # these need the extra `learning`
        from latentbandits.testing import learners

        return getattr(learners, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
