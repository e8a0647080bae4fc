"""How to act on a belief."""

from latentbandits.policies.agent import Agent
from latentbandits.policies.decision import ActionProbabilities, Decision
from latentbandits.policies.experts import EXP4
from latentbandits.policies.forgetting import Discounted, SlidingWindow
from latentbandits.policies.greedy import mmGreedy
from latentbandits.policies.information import mIDS, mmIDS
from latentbandits.policies.latent_ucb import mmUCB, mUCB
from latentbandits.policies.protocol import Policy
from latentbandits.policies.thompson import TS, LinTS, mmTS, mTS
from latentbandits.policies.ucb import UCB1, LinUCB
from latentbandits.policies.uniform import Uniform

__all__ = [
    "EXP4",
    "TS",
    "UCB1",
    "ActionProbabilities",
    "Agent",
    "Decision",
    "Discounted",
    "LinTS",
    "LinUCB",
    "Policy",
    "SlidingWindow",
    "Uniform",
    "mIDS",
    "mTS",
    "mUCB",
    "mmGreedy",
    "mmIDS",
    "mmTS",
    "mmUCB",
]
