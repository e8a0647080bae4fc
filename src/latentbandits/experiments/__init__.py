"""The paper's figures and claims; each has a folder with settings, claims and expected values."""

from latentbandits.experiments.auto import AutoExperiment
from latentbandits.experiments.clicks import ClicksExperiment
from latentbandits.experiments.drift import DriftExperiment
from latentbandits.experiments.errata import ErrataExperiment
from latentbandits.experiments.evaluation import EvaluationExperiment
from latentbandits.experiments.experiment import Experiment
from latentbandits.experiments.families import FamiliesExperiment
from latentbandits.experiments.loop import LoopExperiment
from latentbandits.experiments.misspecification import MisspecificationExperiment
from latentbandits.experiments.movielens import MovieLensExperiment
from latentbandits.experiments.recovery import RecoveryExperiment
from latentbandits.experiments.related import RelatedExperiment
from latentbandits.experiments.side import SideExperiment
from latentbandits.experiments.spectral import SpectralExperiment
from latentbandits.experiments.synthetic import SyntheticExperiment
from latentbandits.experiments.theory import TheoryExperiment
from latentbandits.experiments.yardstick import YardstickExperiment

EXPERIMENTS: tuple[Experiment, ...] = (
    SyntheticExperiment(),
    MovieLensExperiment(),
    ErrataExperiment(),
    TheoryExperiment(),
    SpectralExperiment(),
    DriftExperiment(),
    MisspecificationExperiment(),
    FamiliesExperiment(),
    ClicksExperiment(),
    RecoveryExperiment(),
    SideExperiment(),
    YardstickExperiment(),
    RelatedExperiment(),
    AutoExperiment(),
    EvaluationExperiment(),
    LoopExperiment(),
)

__all__ = ["EXPERIMENTS", "Experiment"]
