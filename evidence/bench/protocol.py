"""Learn from the train users of a problem, and play all contestants with its test users.

The test users are halved by a hash. On the first half the best contestant is picked, and on the
second it is compared with what `fit` recommends: the best of many on one sample wins by luck too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evidence.bench import contestants
from evidence.bench.contestants import OVER_ONE, POPULARITY, CannotPlayError, Timed
from evidence.bench.problem import SHORT, STANDARD, Problem, by_hash
from evidence.bench.training import Training
from latentbandits.learning import Log
from latentbandits.learning.assess.replay import Replay, passes_for, replay
from latentbandits.policies.registry import AUTO

FIRST = 10
"""Rounds of a cold start."""

ENOUGH = 500
"""Users who are played once each; fewer are played several times, with other offers."""


@dataclass(frozen=True)
class Task:
    """A problem and its contestants: all that a worker process is given."""

    problem: Problem
    policies: tuple[str, ...]
    folder: Path
    seed: int = 0
    short: bool = False


@dataclass(frozen=True, eq=False)
class Played:
    """The rewards of one form of a problem, on both halves of the test users."""

    first: Replay
    second: Replay
    horizon: int

    def everyone(self) -> Replay:
        return self.first.joined([self.second], list(self.first.rewards))

    @property
    def windows(self) -> tuple[tuple[str, int], ...]:
        """The first rounds, and all rounds."""
        return ("first", min(FIRST, self.horizon)), ("all", self.horizon)

    def best(self, rounds: int) -> str:
        """Return the contestant with the largest reward on the first half."""
        names = self.first.rewards
        return max(names, key=lambda name: self.first.reward(name, rounds).mean)


def run(task: Task) -> dict[str, Any]:
    """Return the results of a problem as plain data: its models, and a row per contestant."""
    problem, started = task.problem, time.process_time()
    sizes = SHORT if task.short else STANDARD
    train, test = problem.load(task.folder, task.seed, sizes)
    training = Training(train, problem.horizon, task.seed, quick=task.short)
    test = test.of_events(training.counts[test.actions] > 0)
    players: dict[str, Timed] = {}
    absent: dict[str, str] = {}
    for text in task.policies:
        try:
            players[text] = Timed(text, contestants.make(text, training))
        except CannotPlayError as error:
            absent[text] = str(error)
    learned = time.process_time()
    forms = {
        form: _play(players, test, problem, offered, task)
        for form, offered in problem.forms.items()
    }
    rows = [row for form, played in forms.items() for row in _rows(problem, form, played, players)]
    main = next(iter(forms.values()))
    return {
        "problem": problem.name,
        "about": problem.about,
        "unit": problem.unit,
        "horizon": problem.horizon,
        "replacement": problem.replacement,
        "train_users": train.n_users,
        "test_users": len(main.first.rounds) + len(main.second.rounds),
        "rows": rows,
        "absent": absent,
        "model": _model(training),
        "states": _states(training, main),
        "against_best": _against_best(main),
        "seconds_of_learning": round(learned - started, 1),
        "seconds": round(time.process_time() - started, 1),
    }


def _play(
    players: Mapping[str, Timed], test: Log, problem: Problem, offered: int | None, task: Task
) -> Played:
    halves = by_hash(test, test.n_users // 2, task.seed + 1)
    once = task.short or test.lists is not None or test.n_users >= ENOUGH
    passes = 1 if once else passes_for(test)
    largest = int(np.diff(test.starts).max())
    first, second = (
        replay(
            players, test.of_users(half), offered=offered or largest, most_rounds=problem.horizon,
            passes=passes, menus=test.lists is not None, seed=task.seed + i,
        )
        for i, half in enumerate(halves)
    )  # fmt: skip
    return Played(first, second, problem.horizon)


def _rows(
    problem: Problem, form: str, played: Played, players: Mapping[str, Timed]
) -> list[dict[str, Any]]:
    everyone, rows = played.everyone(), []
    for name, player in players.items():
        row: dict[str, Any] = {"setting": problem.name, "form": form, "policy": name}
        for key, rounds in played.windows:
            row[f"{key}_rounds"] = rounds
            row |= everyone.reward(name, rounds).row(f"{key}_reward")
            if POPULARITY in players:
                row |= everyone.difference(name, POPULARITY, rounds).row(f"{key}_gain")
        rows.append(row | {"microseconds": round(player.microseconds, 1)})
    return rows


def _model(training: Training) -> dict[str, Any] | None:
    if "fitted" not in vars(training):
        return None  # no contestant asked for it
    report = training.fitted.report
    settings, judged = report["settings"], report["judgement"]
    return {
        **{name: settings[name] for name in ("kind", "states", "rank")},
        "family": report["family"],
        **{name: judged[name] for name in ("recommended_policy", "verdict", "sentence")},
    }


def _states(training: Training, played: Played) -> dict[str, Any] | None:
    """Return held-out evidence of states against one, and what states gained in reward."""
    if not played.first.rewards.keys() >= set(OVER_ONE):
        return None
    everyone = played.everyone()
    evidence = training.evidence
    names = ("states", "nats_per_user", "nats_stderr")
    found = {name: None if evidence is None else evidence[name] for name in names}
    for key, rounds in played.windows:
        found |= everyone.difference(*OVER_ONE, rounds).row(f"{key}_gain")
    return found


def _against_best(played: Played) -> dict[str, Any] | None:
    """Compare what `fit` recommends with the best contestant of the first half, on the second."""
    if not {AUTO, POPULARITY} <= played.first.rewards.keys():
        return None
    found: dict[str, Any] = {}
    for key, rounds in played.windows:
        best = played.best(rounds)
        found[f"{key}_best"] = best
        found |= played.second.difference(AUTO, best, rounds).row(f"{key}_lead")
        popular = played.everyone().difference(AUTO, POPULARITY, rounds)
        found |= popular.row(f"{key}_over_popularity")
    return found
