"""The paper's experiments: `latentbandits reproduce NAME`.

Other installed packages join by the entry points of the group `latentbandits.experiments`.
"""

from collections.abc import Iterator
from importlib.metadata import entry_points

from latentbandits.experiments.errata import ErrataExperiment
from latentbandits.experiments.experiment import Experiment
from latentbandits.experiments.movielens import MovieLensExperiment
from latentbandits.experiments.synthetic import SyntheticExperiment
from latentbandits.experiments.theory import TheoryExperiment

__all__ = ["ENTRY_POINTS", "EXPERIMENTS", "MOVED", "Experiment", "installed"]

ENTRY_POINTS = "latentbandits.experiments"

EXPERIMENTS: tuple[Experiment, ...] = (
    SyntheticExperiment(),
    MovieLensExperiment(),
    ErrataExperiment(),
    TheoryExperiment(),
)

MOVED = (
    "auto", "clicks", "drift", "evaluation", "families", "loop", "misspecification", "recovery",
    "side", "spectral", "yardstick",
)  # fmt: skip
"""Experiments beyond the paper, which a clone of the repository runs: `python -m evidence NAME`."""


def installed() -> Iterator[Experiment]:
    """Yield the paper's experiments, then the experiments of other installed packages."""
    yield from EXPERIMENTS
    for point in sorted(entry_points(group=ENTRY_POINTS)):
        yield point.load()()
