"""The systems around the paper, side by side: `latentbandits reproduce related`."""

from latentbandits.experiments.related.experiment import RelatedExperiment

__all__ = ["RelatedExperiment"]
