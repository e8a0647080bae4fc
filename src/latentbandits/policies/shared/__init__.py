"""Policies that learn across users: the session axis counts populations."""

from latentbandits_related.club import CLUB
from latentbandits_related.cofiba import COFIBA
from latentbandits_related.dynucb import DynUCB
from latentbandits_related.meta import AdaTS, MetaTS
from latentbandits_related.nmf import NMFBandit
from latentbandits_related.particle_mf import ParticleMF
from latentbandits_related.sclub import SCLUB

from latentbandits.policies.shared.grouped import GroupedLinUCB
from latentbandits.policies.shared.hierarchical import HierTS, HierUCB
from latentbandits.policies.shared.per_user import PerUser
from latentbandits.policies.shared.phased import Phased

__all__ = [
    "CLUB",
    "COFIBA",
    "SCLUB",
    "AdaTS",
    "DynUCB",
    "GroupedLinUCB",
    "HierTS",
    "HierUCB",
    "MetaTS",
    "NMFBandit",
    "ParticleMF",
    "PerUser",
    "Phased",
]
