"""Policies: they choose actions from beliefs."""

from typing import TYPE_CHECKING

from latentbandits.lazy import lazy_exports
from latentbandits.policies import related as _related
from latentbandits.policies.agent import Agent
from latentbandits.policies.bayes_ucb import mBayesUCB, mmBayesUCB
from latentbandits.policies.decision import ActionProbabilities, Decision
from latentbandits.policies.experts import EXP4
from latentbandits.policies.exploring import Exploring
from latentbandits.policies.forgetting import Discounted, SlidingWindow
from latentbandits.policies.greedy import mmGreedy
from latentbandits.policies.information import mIDS, mmIDS
from latentbandits.policies.knowledge_gradient import mKG, mmKG
from latentbandits.policies.latent_ucb import mmUCB, mUCB
from latentbandits.policies.lookahead import mLookahead
from latentbandits.policies.popularity import Popularity, Uniform
from latentbandits.policies.protocol import AnyPolicy, Policy
from latentbandits.policies.thompson import TS, LinTS, mmTS, mTS
from latentbandits.policies.ucb import UCB1, LinUCB

if TYPE_CHECKING:
    from latentbandits.policies.latent_order import LatentOrderTS as LatentOrderTS
    from latentbandits.policies.policy_reuse import PolicyReuse as PolicyReuse
    from latentbandits.policies.population import CLUB as CLUB
    from latentbandits.policies.population import COFIBA as COFIBA
    from latentbandits.policies.population import SCLUB as SCLUB
    from latentbandits.policies.population import AdaTS as AdaTS
    from latentbandits.policies.population import DynUCB as DynUCB
    from latentbandits.policies.population import GroupedLinUCB as GroupedLinUCB
    from latentbandits.policies.population import HierTS as HierTS
    from latentbandits.policies.population import HierUCB as HierUCB
    from latentbandits.policies.population import MetaTS as MetaTS
    from latentbandits.policies.population import NMFBandit as NMFBandit
    from latentbandits.policies.population import ParticleMF as ParticleMF
    from latentbandits.policies.population import PerUser as PerUser
    from latentbandits.policies.population import Phased as Phased
    from latentbandits.policies.proball import ProBALL as ProBALL
    from latentbandits.policies.rank1 import Rank1Elim as Rank1Elim
    from latentbandits.policies.rank1 import Rank1ElimKL as Rank1ElimKL
    from latentbandits.policies.structured import TSC as TSC
    from latentbandits.policies.structured import UCBC as UCBC
    from latentbandits.policies.structured import UCBS as UCBS
    from latentbandits.policies.structured import SingleKUCB as SingleKUCB

__all__ = [
    "EXP4",
    "TS",
    "UCB1",
    "ActionProbabilities",
    "Agent",
    "AnyPolicy",
    "Decision",
    "Discounted",
    "Exploring",
    "LinTS",
    "LinUCB",
    "Policy",
    "Popularity",
    "SlidingWindow",
    "Uniform",
    "mBayesUCB",
    "mIDS",
    "mKG",
    "mLookahead",
    "mTS",
    "mUCB",
    "mmBayesUCB",
    "mmGreedy",
    "mmIDS",
    "mmKG",
    "mmTS",
    "mmUCB",
]

__getattr__ = lazy_exports(__name__, _related.MODULES)
