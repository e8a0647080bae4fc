"""Off-policy estimators on generated logs with a known true value."""

from latentbandits.experiments.evaluation.experiment import EvaluationExperiment

__all__ = ["EvaluationExperiment"]
