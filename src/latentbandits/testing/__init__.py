"""Conformance checks for any policy, model or environment: call them from a test of your own.

>>> from latentbandits import UCB1
>>> check_policy(UCB1(n_actions=3), n_actions=3)
"""

from latentbandits.testing.environments import check_environment
from latentbandits.testing.models import check_model
from latentbandits.testing.policies import check_policy

__all__ = ["check_environment", "check_model", "check_policy"]
