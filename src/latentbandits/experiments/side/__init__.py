"""Attributes of users and items with known effects: the share of their value that is learned."""

from latentbandits.experiments.side.experiment import SideExperiment

__all__ = ["SideExperiment"]
