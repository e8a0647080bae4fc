"""Estimate from logs what a policy would have earned, with intervals over sessions."""

from latentbandits.evaluation.evaluate import LOGGED, Evaluation, evaluate
from latentbandits.evaluation.intervals import Interval, normal_interval, sequence_interval
from latentbandits.evaluation.log import DecisionLog, EvaluationError

__all__ = [
    "LOGGED",
    "DecisionLog",
    "Evaluation",
    "EvaluationError",
    "Interval",
    "evaluate",
    "normal_interval",
    "sequence_interval",
]
