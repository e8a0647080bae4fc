"""Every family of rewards on a problem of its own: `latentbandits reproduce families`."""

from latentbandits.experiments.families.experiment import FamiliesExperiment

__all__ = ["FamiliesExperiment"]
