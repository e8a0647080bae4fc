"""Every reward family on its own problem: `latentbandits reproduce families`."""

from latentbandits.experiments.families.experiment import FamiliesExperiment

__all__ = ["FamiliesExperiment"]
