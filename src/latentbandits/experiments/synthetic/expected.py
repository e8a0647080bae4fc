"""Results of an independent implementation, 2,000 runs; ours must agree within their errors."""

from __future__ import annotations

from collections.abc import Mapping

from latentbandits.report.estimate import Estimate

REGRET: Mapping[str, Mapping[str, Estimate]] = {
    "sigma0=0.05": {
        "UCB1": Estimate(101.6, 0.2),
        "UCB1(scale=0.5)": Estimate(46.7, 0.2),
        "TS": Estimate(37.2, 0.4),
        "EXP4": Estimate(57.2, 0.4),
        "mUCB": Estimate(28.6, 0.6),
        "mTS": Estimate(6.2, 0.3),
        "mmTS": Estimate(7.3, 0.1),
    },
    "sigma0=0.2": {
        "UCB1": Estimate(101.6, 0.2),
        "UCB1(scale=0.5)": Estimate(46.7, 0.2),
        "TS": Estimate(37.2, 0.4),
        "EXP4": Estimate(80.4, 1.0),
        "mUCB": Estimate(66.0, 1.6),
        "mTS": Estimate(55.3, 1.4),
        "mmTS": Estimate(27.8, 0.3),
    },
}

WORST_DECILE_REWARD: Mapping[str, Mapping[str, float]] = {
    "sigma0=0.05": {"UCB1": 0.540, "UCB1(scale=0.5)": 0.644, "TS": 0.648},
    "sigma0=0.2": {
        "UCB1": 0.540,
        "UCB1(scale=0.5)": 0.644,
        "TS": 0.648,
        "mTS": 0.494,
        "mmTS": 0.677,
    },
}
"""Values printed without errors; they have as many runs as ours, so similar errors are assumed."""
