"""From logs to models: completion, clusters, mixtures, and how wrong they may be."""

from latentbandits.learning.clusters import cluster_users
from latentbandits.learning.completion import complete
from latentbandits.learning.fitting import Fit, fit
from latentbandits.learning.logs import Log, read_log
from latentbandits.learning.mixture import fit_mixture
from latentbandits.learning.save import load_report, save_fit
from latentbandits.learning.spectral import fit_spectral
from latentbandits.learning.tables import LogError

__all__ = [
    "Fit",
    "Log",
    "LogError",
    "cluster_users",
    "complete",
    "fit",
    "fit_mixture",
    "fit_spectral",
    "load_report",
    "read_log",
    "save_fit",
]
