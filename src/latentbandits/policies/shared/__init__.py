"""Policies that learn across users: the session axis counts populations."""

from latentbandits.policies.shared.hierarchical import HierTS, HierUCB
from latentbandits.policies.shared.phased import Phased

__all__ = ["HierTS", "HierUCB", "Phased"]
