"""Policies against the users of a model that was learned from a log."""

from latentbandits.experiments.fitted.play import POLICIES, Settings, play

__all__ = ["POLICIES", "Settings", "play"]
