"""How to act on a belief."""

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
