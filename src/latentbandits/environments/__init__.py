"""Environments: they draw the contexts and rewards of simulated runs."""

from latentbandits.environments.from_model import UsersOfModel
from latentbandits.environments.grouped_ratings import GroupedRatings
from latentbandits.environments.known_users import KnownUsers
from latentbandits.environments.missing_states import MissingStates
from latentbandits.environments.population import Population
from latentbandits.environments.protocol import Environment, Instances, Round
from latentbandits.environments.switching import Switching
from latentbandits.environments.synthetic import Synthetic

__all__ = [
    "Environment",
    "GroupedRatings",
    "Instances",
    "KnownUsers",
    "MissingStates",
    "Population",
    "Round",
    "Switching",
    "Synthetic",
    "UsersOfModel",
]
