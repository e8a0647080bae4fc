"""The measured loops: users, a first model, and a reference model that the loop should approach."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from latentbandits.experiments.loop.users import MovieLensUsers, SimulatedUsers, Users
from latentbandits.experiments.movielens.data import find_folder, load
from latentbandits.learning.fitting import fit
from latentbandits.learning.save import save_fit
from latentbandits.models import GaussianArms

MEANS = np.array(
    [
        [0.9, 0.5, 0.4, 0.1],
        [0.1, 0.9, 0.4, 0.5],
        [0.5, 0.1, 0.9, 0.4],
    ]
)
NOISE = 0.5
EXPLORE = 0.1  # of logs that candidates are judged on in process
POLICY = "mmTS"


@dataclass(frozen=True, eq=False)
class Case:
    """One loop.

    Attributes:
        name: the kind of users.
        letter: the first letter of its claims' ids.
        users: the users who visit the service.
        reference: the model that the loop should approach; a policy on it has the least regret.
        reference_name: the name of the reference in tables.
        sessions: number of sessions of a phase, over HTTP.
        first_users: number of users from whom the first model is learned.
        fit_options: options of the first fit and of relearning.
        broken_sessions, better_sessions: numbers of sessions of a log in process at the gate.
        rough: standard deviation of the error in the means of a rough model.
        held_out: share of the sessions that judge candidates.
        explore: share of random actions on the service.
    """

    name: str
    letter: str
    users: Users
    reference: GaussianArms
    reference_name: str
    sessions: int
    first_users: int
    broken_sessions: int
    better_sessions: int
    rough: float
    held_out: float
    explore: float
    fit_options: dict[str, Any] = field(default_factory=dict)

    def save_first(self, path: Path, log: Path, rng: np.random.Generator) -> None:
        """Fit the first model to few users, and save it and their log."""
        import polars as pl

        table = self.users.first_table(self.first_users, rng)
        pl.DataFrame(table).write_parquet(log)
        save_fit(fit(table, bootstrap=0, **self.fit_options | {"states": 3}), path)

    def rough_model(self, rng: np.random.Generator) -> GaussianArms:
        """Return the reference with errors in its means."""
        error = self.rough * rng.standard_normal(self.reference.means.shape)
        return self._with_means(self.reference.means + error)

    def broken_model(self, rng: np.random.Generator) -> GaussianArms:
        """Return the reference with its actions shuffled, or its rewards inverted."""
        means = self.reference.means
        if rng.random() < 0.5:
            return self._with_means(means.max() + means.min() - means)
        return self.shuffled_model(rng)

    def shuffled_model(self, rng: np.random.Generator) -> GaussianArms:
        """Return the reference with its actions permuted; no action keeps its place."""
        n = self.users.n_actions
        order = rng.permutation(n)
        places = np.empty(n, np.int64)
        places[order] = np.roll(order, 1)  # a single cycle
        return self._with_means(self.reference.means[:, places])

    def _with_means(self, means: Any) -> GaussianArms:
        return GaussianArms(means, self.reference.noise, 0.0, self.reference.state_prior)


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Return the chosen loops."""
    makers = {"simulated": _simulated, "movielens": _movielens}
    return [makers[name](arguments) for name in arguments.users]


def _simulated(arguments: argparse.Namespace) -> Case:
    users = SimulatedUsers(MEANS, NOISE, 8)
    return Case(
        name="simulated",
        letter="L",
        users=users,
        reference=users.truth,
        reference_name="mTS, true model",
        sessions=2000,
        first_users=15,
        broken_sessions=2_500,
        better_sessions=20_000,
        rough=0.15,
        held_out=0.5,
        explore=0.2,
        fit_options={"kind": "arms", "rewards": "gaussian"},
    )


def _movielens(arguments: argparse.Namespace) -> Case:
    users = MovieLensUsers(load(find_folder(arguments.data)))
    options: dict[str, Any] = {"kind": "arms", "rewards": "gaussian"}
    everyone = users.table(len(users.ratings), np.random.default_rng(arguments.seed))
    known = fit(everyone, bootstrap=0, **options | {"states": 4}).model
    means = known.expected_rewards(None)[0]
    return Case(
        name="movielens",
        letter="M",
        users=users,
        reference=GaussianArms(means, known.noise, 0.0, known.state_prior),
        reference_name="mTS, model of all users",
        sessions=700,
        first_users=20,
        broken_sessions=1_500,
        better_sessions=8_000,
        rough=0.3 * float(means.std()),
        held_out=0.5,
        explore=0.1,
        fit_options=options,
    )
