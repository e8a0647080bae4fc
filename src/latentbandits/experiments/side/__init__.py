"""Attributes of users and items with known effects: how much of their worth is learned."""

from latentbandits.experiments.side.experiment import SideExperiment

__all__ = ["SideExperiment"]
