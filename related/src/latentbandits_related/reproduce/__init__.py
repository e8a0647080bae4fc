"""Related systems compared with the paper's policies: `latentbandits reproduce related`."""

from latentbandits_related.reproduce.experiment import RelatedExperiment

__all__ = ["RelatedExperiment"]
