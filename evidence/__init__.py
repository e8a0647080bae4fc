"""Experiments beyond the paper; they are not installed: `python -m evidence NAME` in a clone.

An experiment is one module with a class of the names of `latentbandits.experiments.Experiment`
(name, help, options, check, run) and one line here.
"""

from evidence.auto import AutoExperiment
from evidence.bench import BenchExperiment
from evidence.clicks import ClicksExperiment
from evidence.drift import DriftExperiment
from evidence.dynamics import DynamicsExperiment
from evidence.evaluation import EvaluationExperiment
from evidence.families import FamiliesExperiment
from evidence.lists import ListsExperiment
from evidence.loop import LoopExperiment
from evidence.misspecification import MisspecificationExperiment
from evidence.nonstationary import NonStationaryExperiment
from evidence.optimum import YardstickExperiment
from evidence.promotion import PromotionExperiment
from evidence.recovery import RecoveryExperiment
from evidence.rewards import RewardsExperiment
from evidence.side import SideExperiment
from evidence.spectral import SpectralExperiment
from evidence.start import StartExperiment
from evidence.written import WrittenExperiment
from latentbandits.experiments import Experiment

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: tuple[Experiment, ...] = (
    SpectralExperiment(),
    DriftExperiment(),
    DynamicsExperiment(),
    NonStationaryExperiment(),
    MisspecificationExperiment(),
    FamiliesExperiment(),
    ClicksExperiment(),
    RecoveryExperiment(),
    RewardsExperiment(),
    SideExperiment(),
    YardstickExperiment(),
    AutoExperiment(),
    EvaluationExperiment(),
    LoopExperiment(),
    PromotionExperiment(),
    ListsExperiment(),
    StartExperiment(),
    WrittenExperiment(),
    BenchExperiment(),
)
