"""Generated mixtures of every reward family: number of states and calibration."""

from latentbandits.experiments.recovery.experiment import RecoveryExperiment

__all__ = ["RecoveryExperiment"]
