"""Conformance checks for any policy, model, environment or store: call them from your own tests.

>>> from latentbandits import UCB1
>>> check_policy(UCB1(n_actions=3), n_actions=3)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from latentbandits.testing.environments import check_environment
from latentbandits.testing.models import check_model
from latentbandits.testing.policies import check_policy

if TYPE_CHECKING:
    from latentbandits.testing.stores import check_store

__all__ = ["check_environment", "check_model", "check_policy", "check_store"]


def __getattr__(name: str) -> Any:
    if name == "check_store":  # needs the extra `serving`, the others do not
        from latentbandits.testing.stores import check_store

        return check_store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
