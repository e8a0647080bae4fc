"""Off-policy estimators on generated logs whose true answer is known."""

from latentbandits.experiments.evaluation.experiment import EvaluationExperiment

__all__ = ["EvaluationExperiment"]
