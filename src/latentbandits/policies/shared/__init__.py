"""Policies that learn across users: the session axis counts populations."""

from latentbandits.policies.shared.hierarchical import HierTS, HierUCB
from latentbandits.policies.shared.per_user import GroupedLinUCB, PerUser
from latentbandits.policies.shared.phased import Phased

__all__ = ["GroupedLinUCB", "HierTS", "HierUCB", "PerUser", "Phased"]
