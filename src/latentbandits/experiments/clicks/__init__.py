"""Learning from clicks: the learned model compared with showing the most popular action."""

from latentbandits.experiments.clicks.experiment import ClicksExperiment

__all__ = ["ClicksExperiment"]
