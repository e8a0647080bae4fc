"""Policies: they choose actions from beliefs."""

from typing import TYPE_CHECKING

from latentbandits.lazy import lazy_exports
from latentbandits.policies.agent import Agent, load_agent
from latentbandits.policies.classic import EXP4, UCB1, LinUCB, Popularity, Uniform
from latentbandits.policies.decision import ActionProbabilities, Decision
from latentbandits.policies.latent.lookahead import mLookahead
from latentbandits.policies.latent.sampling import TS, LinTS, mIDS, mmIDS, mmTS, mTS
from latentbandits.policies.latent.ucb import mBayesUCB, mmBayesUCB, mmGreedy, mmUCB, mUCB
from latentbandits.policies.lists import ListDecision, decide_list, update_list
from latentbandits.policies.protocol import AnyPolicy, Policy
from latentbandits.policies.wrappers import Discounted, Exploring, SlidingWindow

if TYPE_CHECKING:
    from latentbandits.policies.shared import HierTS as HierTS
    from latentbandits.policies.shared import HierUCB as HierUCB
    from latentbandits.policies.shared import Phased as Phased

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
    "HierTS",
    "HierUCB",
    "LinTS",
    "LinUCB",
    "ListDecision",
    "Phased",
    "Policy",
    "Popularity",
    "SlidingWindow",
    "Uniform",
    "decide_list",
    "load_agent",
    "mBayesUCB",
    "mIDS",
    "mLookahead",
    "mTS",
    "mUCB",
    "mmBayesUCB",
    "mmGreedy",
    "mmIDS",
    "mmTS",
    "mmUCB",
    "update_list",
]

_MODULES = dict.fromkeys(("HierTS", "HierUCB", "Phased"), "latentbandits.policies.shared")

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
