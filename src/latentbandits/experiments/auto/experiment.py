"""Tune on users drawn from the model, then play the winner and all candidates on the truth.

On real users, the winner is compared with popularity by replay of ratings (`real_users.py`).
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import Executor
from functools import partial
from typing import Any

from latentbandits.experiments.auto.problems import Problem, problems
from latentbandits.experiments.auto.real_users import (
    POPULARITY,
    not_below_popularity,
    play_real_users,
    real_logs,
    replay_rows,
)
from latentbandits.options import above_zero, choose, positive
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.policies.registry import Inputs, build
from latentbandits.report.progress import Progress
from latentbandits.report.report import Claim, Report, Table
from latentbandits.simulation import Results, simulate
from latentbandits.simulation.tune import Tuning, default_candidates, tune_in

RUNS = 1000
_SHARE = 0.05  # largest excess regret of auto, as a fraction of the best candidate's regret
_ERRORS = 2.0  # or this many paired standard errors, if they are larger
_REPLAY = ("log", "policy", "rounds 1-10", "rounds 1-20", "rounds 1-50")
_IDS_SETTING, _IDS_RUNS = "sigma0=0.2, 500 rounds", 4000


class AutoExperiment:
    """Test whether tuning on the model finds the policy that is best on the truth."""

    name = "auto"
    help = "the policy that tune chooses, beside its candidates, on problems it was not tuned on"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--runs", type=positive, default=RUNS, help=f"runs of a problem (default {RUNS})")
        add("--effort", type=above_zero, default=1.0, help="of tune (default 1)")
        add("--problems", nargs="+", metavar="NAME", help="only these (default: all)")
        add("--data", metavar="DIR", help="a MovieLens 1M folder (default: as for movielens)")
        add("--small", metavar="DIR", help="a MovieLens latest-small folder (default: the folder "
            "ml-latest-small beside --data; without it that replay is left out)")  # fmt: skip

    def check(self, arguments: argparse.Namespace) -> None:
        known = [*problems(None), *real_logs(arguments.data, arguments.small)]
        choose("problem", arguments.problems, known)

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        started = time.perf_counter()
        makers = problems(arguments.data)
        rows: list[dict[str, Any]] = []
        claims: list[Claim] = []
        body: list[tuple[str, ...]] = []
        logs = real_logs(arguments.data, arguments.small)
        names = choose("problem", arguments.problems, [*makers, *logs])
        real: list[tuple[str, ...]] = []
        for name in names:
            if name in logs:
                played = play_real_users(logs[name](), arguments.seed, progress)
                claims += not_below_popularity(name, played)
                rows += [row | {"setting": name} for row in played.replay.rows(POPULARITY)]
                real += replay_rows(name, played)
                continue
            problem = makers[name](arguments.seed)
            tuning = _tune(problem, arguments, executor, progress)
            progress.start(f"auto, {name}", arguments.runs)
            candidates = [row.policy for row in tuning.table]
            results = _play(problem, candidates, arguments.runs, arguments.seed, executor, progress)
            claims.append(_near_best(name, tuning.winner, results))
            rows += [result.row() | {"setting": name} for result in results.values()]
            body.append(_summary(name, tuning, results))
            if name == _IDS_SETTING:
                runs = max(arguments.runs, _IDS_RUNS)
                progress.start(f"auto against mmIDS, {name}", runs)
                pair = [tuning.winner, "mmIDS"]
                against_ids = _play(problem, pair, runs, arguments.seed + 1, executor, progress)
                claims.append(_below_ids(name, tuning.winner, against_ids))
        columns = ("problem", "auto", "its regret", "best candidate", "its regret", "mmIDS", "mmTS")
        return Report(
            experiment=self.name,
            settings={
                "runs": arguments.runs,
                "effort": arguments.effort,
                "seed": arguments.seed,
                "problems": names,
            },
            seconds=time.perf_counter() - started,
            policies=rows,
            claims=claims,
            tables=[
                *([Table(f"Regret, {arguments.runs} runs", columns, body)] if body else []),
                *([Table("Mean rating (over popularity)", _REPLAY, real)] if real else []),
            ],
        )


def _tune(
    problem: Problem,
    arguments: argparse.Namespace,
    executor: Executor | None,
    progress: Progress,
) -> Tuning:
    texts = default_candidates(problem.model, problem.horizon, problem.n_actions)
    return tune_in(
        problem.tuned,
        problem.horizon,
        texts,
        seed=arguments.seed + 1000,
        effort=arguments.effort,
        executor=executor,
        progress=progress,
    )


def _play(
    problem: Problem,
    texts: list[str],
    runs: int,
    seed: int,
    executor: Executor | None,
    progress: Progress,
) -> Results:
    return simulate(
        {text: partial(_make, text, problem.horizon) for text in dict.fromkeys(texts)},
        problem.played,
        n_runs=runs,
        horizon=problem.horizon,
        seed=seed,
        executor=executor,
        progress=progress.advance,
    )


def _make(text: str, horizon: int, model: Any) -> AnyPolicy:
    return build(text, Inputs(model=model, horizon=horizon))


def _best(results: Results) -> str:
    return min(results, key=lambda name: results[name].regret.mean)


def _near_best(name: str, winner: str, results: Results) -> Claim:
    best = _best(results)
    behind = results.difference(winner, best)
    allowed = max(_SHARE * results[best].regret.mean, _ERRORS * behind.stderr)
    return Claim(
        f"A {name}",
        "the tuned policy is as good as the best candidate",
        f"regret of {winner} - {best} <= {allowed:.3g}",
        str(behind),
        behind.mean <= allowed,
    )


def _below_ids(name: str, winner: str, results: Results) -> Claim:
    lead = results.difference("mmIDS", winner)
    share = results[winner].regret.mean / results["mmIDS"].regret.mean
    return Claim(
        f"A IDS {name}",
        "the tuned policy is below mmIDS by more than two paired standard errors",
        f"regret mmIDS - {winner} > {_ERRORS * lead.stderr:.2g}",
        f"{lead}; ratio {share:.3f} ±{lead.stderr / results['mmIDS'].regret.mean:.3f}",
        lead.mean > _ERRORS * lead.stderr,
    )


def _summary(name: str, tuning: Tuning, results: Results) -> tuple[str, ...]:
    best = _best(results)
    others = [next((t for t in results if t.startswith(o)), None) for o in ("mmIDS", "mmTS")]
    return (
        name,
        tuning.winner,
        str(results[tuning.winner].regret),
        best,
        str(results[best].regret),
        *("" if text is None else str(results[text].regret) for text in others),
    )
