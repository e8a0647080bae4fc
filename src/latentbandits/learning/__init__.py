"""Learn models from logs: matrix completion, clustering, mixtures, and their uncertainty."""

from typing import TYPE_CHECKING

from latentbandits.lazy import lazy_exports

if TYPE_CHECKING:
    from latentbandits.learning.assess.verdict import judge_saved
    from latentbandits.learning.fit_options import FitOptions
    from latentbandits.learning.fitting import Fit, fit
    from latentbandits.learning.linear.clusters import cluster_users
    from latentbandits.learning.linear.completion import complete
    from latentbandits.learning.logs.rows import Log, read_log
    from latentbandits.learning.logs.tables import LogError
    from latentbandits.learning.mixture import fit_mixture, fit_spectral
    from latentbandits.learning.save import load_report, save_fit

__all__ = [
    "Fit",
    "FitOptions",
    "Log",
    "LogError",
    "cluster_users",
    "complete",
    "fit",
    "fit_mixture",
    "fit_spectral",
    "judge_saved",
    "load_report",
    "read_log",
    "save_fit",
]

# Importing polars takes a quarter of a second, and matrix completion does not need it.
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Fit": "latentbandits.learning.fitting",
        "FitOptions": "latentbandits.learning.fit_options",
        "Log": "latentbandits.learning.logs.rows",
        "LogError": "latentbandits.learning.logs.tables",
        "cluster_users": "latentbandits.learning.linear.clusters",
        "complete": "latentbandits.learning.linear.completion",
        "fit": "latentbandits.learning.fitting",
        "fit_mixture": "latentbandits.learning.mixture",
        "fit_spectral": "latentbandits.learning.mixture",
        "judge_saved": "latentbandits.learning.assess.verdict",
        "load_report": "latentbandits.learning.save",
        "read_log": "latentbandits.learning.logs.rows",
        "save_fit": "latentbandits.learning.save",
    },
)
