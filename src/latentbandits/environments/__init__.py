"""Environments: they draw the contexts and rewards of simulated runs."""

from latentbandits.environments.from_model import UsersOfModel
from latentbandits.environments.known_users import GroupedRatings, KnownUsers
from latentbandits.environments.population import Population
from latentbandits.environments.protocol import Environment, Instances, Round
from latentbandits.environments.synthetic import Switching, Synthetic

__all__ = [
    "Environment",
    "GroupedRatings",
    "Instances",
    "KnownUsers",
    "Population",
    "Round",
    "Switching",
    "Synthetic",
    "UsersOfModel",
]
