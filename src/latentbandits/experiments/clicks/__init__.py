"""Learning from clicks: does the learned model beat showing the most popular action?"""

from latentbandits.experiments.clicks.experiment import ClicksExperiment

__all__ = ["ClicksExperiment"]
