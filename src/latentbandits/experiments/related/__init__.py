"""Related systems compared with the paper's policies: `latentbandits reproduce related`."""

from latentbandits.experiments.related.experiment import RelatedExperiment

__all__ = ["RelatedExperiment"]
