"""Where contexts and rewards come from when we simulate."""

from latentbandits.environments.protocol import Environment, Instances, Round
from latentbandits.environments.synthetic import Synthetic

__all__ = ["Environment", "Instances", "Round", "Synthetic"]
