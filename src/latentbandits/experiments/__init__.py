"""The paper's figures and claims; each has a folder with settings, claims and expected values."""

from evidence.auto import AutoExperiment
from evidence.clicks import ClicksExperiment
from evidence.drift import DriftExperiment
from evidence.evaluation import EvaluationExperiment
from evidence.families import FamiliesExperiment
from evidence.loop import LoopExperiment
from evidence.misspecification import MisspecificationExperiment
from evidence.optimum import YardstickExperiment
from evidence.recovery import RecoveryExperiment
from evidence.side import SideExperiment
from evidence.spectral import SpectralExperiment
from latentbandits_related.reproduce import RelatedExperiment

from latentbandits.experiments.errata import ErrataExperiment
from latentbandits.experiments.experiment import Experiment
from latentbandits.experiments.movielens import MovieLensExperiment
from latentbandits.experiments.synthetic import SyntheticExperiment
from latentbandits.experiments.theory import TheoryExperiment

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
