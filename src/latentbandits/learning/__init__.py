"""Learn models from logs: matrix completion, clustering, mixtures, and their uncertainty."""

from typing import TYPE_CHECKING

from latentbandits.lazy import lazy_exports

if TYPE_CHECKING:
    from latentbandits.learning.assess.tournament import judge_saved as judge_saved
    from latentbandits.learning.fit_options import FitOptions as FitOptions
    from latentbandits.learning.fitting import Fit as Fit
    from latentbandits.learning.fitting import fit as fit
    from latentbandits.learning.linear.clusters import cluster_users as cluster_users
    from latentbandits.learning.linear.completion import complete as complete
    from latentbandits.learning.logs.rows import Log as Log
    from latentbandits.learning.logs.rows import read_log as read_log
    from latentbandits.learning.logs.tables import LogError as LogError
    from latentbandits.learning.mixture import fit_mixture as fit_mixture
    from latentbandits.learning.mixture import fit_spectral as fit_spectral
    from latentbandits.learning.save import load_report as load_report
    from latentbandits.learning.save import save_fit as save_fit

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
        "judge_saved": "latentbandits.learning.assess.tournament",
        "load_report": "latentbandits.learning.save",
        "read_log": "latentbandits.learning.logs.rows",
        "save_fit": "latentbandits.learning.save",
    },
)
