"""Table i: per-session policies with a known model, on the paper's synthetic problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from latentbandits.environments import Synthetic
from latentbandits.environments.synthetic import SyntheticInstances
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.policies import TS, UCB1, mmTS, mTS, mUCB
from latentbandits.policies.protocol import AnyPolicy
from latentbandits_related.latent_order import LatentOrderTS
from latentbandits_related.policy_reuse import PolicyReuse
from latentbandits_related.reproduce.table import Column, Reference, RelatedTable, Row, always
from latentbandits_related.structured import TSC, UCBC, UCBS, SingleKUCB

HORIZON = 500
RUNS = 500
SIGMAS = (0.0, 0.05, 0.2)
RESCALED = "own scale, sigma0="


@dataclass(frozen=True)
class Rescaled:
    """The synthetic problem with a separate scale and level of rewards for every session.

    True means are .5 + U(-.3, .3) + U(.3, 1.7) (mu - .5); the policies are given mu.
    """

    problem: Synthetic

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> SyntheticInstances:
        runs = self.problem.start(n_runs, horizon, rng)
        level = rng.uniform(-0.3, 0.3, size=(n_runs, 1, 1))
        scale = rng.uniform(0.3, 1.7, size=(n_runs, 1, 1))
        return replace(runs, means=0.5 + level + scale * (runs.means - 0.5))


def wide_mmts(model: GaussianArms) -> mmTS:
    """Return mmTS with a spread of .2, regardless of the errors of the model."""
    return mmTS(GaussianArms(model.means, model.noise, 0.2))


Values = tuple[tuple[float, float] | None, tuple[float, float] | None, tuple[float, float] | None]

POLICIES: Mapping[str, tuple[Callable[[Any], AnyPolicy], Values, int]] = {
    "UCB1(scale=0.5)": (always(UCB1(10, 0.5)), ((46.8, .5), (46.8, .5), (46.8, .5)), 500),
    "TS": (always(TS(10, 0.5, 0.5, (1 / 12) ** 0.5)), ((35.9, .7), (35.9, .7), (35.9, .7)), 500),
    "mUCB": (partial(mUCB, horizon=HORIZON), ((28.7, 1.1), (30.9, 1.3), (64.3, 2.4)), 500),
    "mTS": (mTS, ((4.1, .2), (6.0, .5), (51.9, 2.7)), 500),
    "mmTS, spread .2": (wide_mmts, (None, (23.5, .5), (27.2, .6)), 500),
    "SingleKUCB": (SingleKUCB, ((19.6, .9), (20.8, 1.0), (58.0, 2.7)), 500),
    "UCBS": (UCBS, ((19.7, .9), (21.0, 1.0), (91.5, 3.6)), 500),
    "UCBS, alpha 1": (partial(UCBS, alpha=1.0), ((7.2, .5), (24.0, 2.0), (134.8, 4.0)), 500),
    "UCBC": (UCBC, ((14.2, .4), (15.2, .5), (60.3, 2.0)), 500),
    "UCBC, alpha 1": (partial(UCBC, alpha=1.0), ((7.0, .5), (13.8, .8), (41.8, 1.2)), 500),
    "TSC": (TSC, ((7.9, .2), (9.0, .5), (41.0, 1.7)), 500),
    "TSC, every action first": (partial(TSC, every_action_first=True),
                                ((11.7, .4), (12.7, .5), (42.8, 1.7)), 500),
    "TSC, alpha 1": (partial(TSC, alpha=1.0), ((6.2, .4), (10.4, .6), (36.8, 1.3)), 500),
    "PolicyReuse, greedy": (partial(PolicyReuse, kappa=0.0),
                            ((9.4, .9), (12.1, 1.1), (54.9, 2.8)), 500),
    "PolicyReuse, PI": (partial(PolicyReuse, rule="PI"),
                        ((9.0, .9), (12.2, 1.2), (53.9, 2.8)), 500),
    "PolicyReuse, EI": (partial(PolicyReuse, rule="EI"), ((6.4, .7), (8.8, .8), (52.2, 2.8)), 500),
    "PolicyReuse, BE": (PolicyReuse, ((4.5, .6), (7.1, 1.0), (56.2, 4.1)), 250),
    "PolicyReuse, KG": (partial(PolicyReuse, rule="KG"),
                        ((7.3, 1.1), (9.5, 1.3), (55.2, 3.9)), 250),
    "PolicyReuse, KG, n - t": (partial(PolicyReuse, rule="KG", horizon=HORIZON),
                               ((3.3, .2), (7.0, .9), (53.8, 4.0)), 250),
    "LatentOrderTS": (LatentOrderTS, (None, (13.7, .5), (47.3, 2.4)), 500),
}  # fmt: skip

OWN_SCALE: Mapping[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "UCB1(scale=0.5)": ((45.0, 0.5), (45.0, 0.5)),
    "TS": ((35.5, 0.7), (35.5, 0.7)),
    "mUCB": ((46.6, 2.4), (67.8, 2.9)),
    "mTS": ((20.7, 1.8), (64.1, 3.3)),
    "mmTS, spread .2": ((24.6, 0.7), (29.3, 0.8)),
    "TSC": ((24.6, 0.9), (45.1, 1.8)),
    "LatentOrderTS": ((15.5, 0.7), (49.0, 2.6)),
}


def columns(quick: bool) -> list[Column]:
    runs, horizon = (6, 12) if quick else (RUNS, HORIZON)
    columns = []
    for place, sigma0 in enumerate(SIGMAS):
        rows = {
            name: Row(Synthetic(sigma0), make, _reference(values[place], n))
            for name, (make, values, n) in POLICIES.items()
        }
        columns.append(Column(f"sigma0={sigma0:g}", rows, runs, horizon))
    for place, sigma0 in enumerate(SIGMAS[1:]):
        rows = {
            name: Row(Rescaled(Synthetic(sigma0)), POLICIES[name][0], _reference(pair[place], 500))
            for name, pair in OWN_SCALE.items()
        }
        columns.append(Column(f"{RESCALED}{sigma0:g}", rows, runs, horizon))
    return columns


def _reference(value: tuple[float, float] | None, runs: int) -> Reference | None:
    return None if value is None else Reference(*value, runs)


TABLE = RelatedTable("i", "Known model, one session: 10 actions, 5 states", columns)
