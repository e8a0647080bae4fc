"""Policies that learn across users: the session axis counts populations."""

from latentbandits.policies.population.club import CLUB
from latentbandits.policies.population.cofiba import COFIBA
from latentbandits.policies.population.dynucb import DynUCB
from latentbandits.policies.population.grouped import GroupedLinUCB
from latentbandits.policies.population.hierarchical import HierTS, HierUCB
from latentbandits.policies.population.meta import AdaTS, MetaTS
from latentbandits.policies.population.nmf import NMFBandit
from latentbandits.policies.population.particle_mf import ParticleMF
from latentbandits.policies.population.per_user import PerUser
from latentbandits.policies.population.phased import Phased
from latentbandits.policies.population.sclub import SCLUB

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
