"""The progress protocol, for learners."""

from latentbandits.report.progress import Progress, Silent

__all__ = ["Progress", "Silent"]
