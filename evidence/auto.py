"""The policy that `tune` chooses, compared with its candidates: `python -m evidence auto`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from evidence.clicks import reference_problem
from evidence.families import PROBLEMS
from latentbandits.environments.from_model import UsersOfModel
from latentbandits.environments.known_users import KnownUsers
from latentbandits.environments.protocol import Environment, Instances
from latentbandits.environments.synthetic import Synthetic
from latentbandits.experiments.experiment import Experiment, Setting, Work, policy_rows
from latentbandits.experiments.movielens import DATA, first_split
from latentbandits.learning import fit
from latentbandits.options import Option, above_zero, positive
from latentbandits.report.report import Claim, Report, Table
from latentbandits.simulation import Results
from latentbandits.simulation.simulate import makers
from latentbandits.simulation.tune import ESTIMATES, Tuning, default_candidates, tune_in

# Problems on which the tuned policy is compared with its candidates.
#
# Each problem has an environment that is played, and one for `tune`, whose users are drawn from the
# model that policies are given, never from the truth.

_CONTEXTS = 2000  # contexts from which tune draws, in problems with features


@dataclass(frozen=True, eq=False)
class Problem:
    """A problem: `played` is the truth, `tuned` draws users for tune, `model` has their kind."""

    played: Environment
    tuned: Environment
    model: Any
    n_actions: int
    horizon: int


@dataclass(frozen=True, eq=False)
class UsersOfInstances:
    """Users drawn from the models that an environment gives to policies, one model per run."""

    environment: Environment

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> Instances:
        model: Any = self.environment.start(n_runs, horizon, rng).model
        return UsersOfModel(model, estimates=ESTIMATES).start(n_runs, horizon, rng)


def synthetic(sigma0: float, horizon: int, seed: int) -> Problem:
    """Return the paper's problem: a fresh model for every run."""
    return _fresh(Synthetic(model_noise=sigma0), horizon)


def _fresh(environment: Environment, horizon: int) -> Problem:
    model: Any = environment.start(2, 1, np.random.default_rng(0)).model
    return Problem(environment, UsersOfInstances(environment), model, model.n_actions, horizon)


def family(name: str, horizon: int, seed: int) -> Problem:
    """Return the problem of one reward family of `python -m evidence families`."""
    environment = PROBLEMS[name]
    rng = np.random.default_rng([seed, 1])
    runs = environment.start(_CONTEXTS, 1, rng)
    model: Any = runs.model
    if model.n_features is None:
        return _fresh(environment, horizon)
    contexts = runs.round(0, rng).context
    assert contexts is not None
    return Problem(environment, UsersOfModel(model, contexts), model, contexts.shape[1], horizon)


def movielens(folder: str | None, horizon: int, seed: int) -> Problem:
    """Return the paper's MovieLens problem: one split of the ratings."""
    environment = first_split(folder, seed)
    rng = np.random.default_rng([seed, 2])
    contexts = environment.features[environment.draw(_CONTEXTS, rng)]
    users = UsersOfModel(environment.model, contexts)
    return Problem(environment, users, environment.model, contexts.shape[1], horizon)


def clicks(horizon: int, seed: int) -> Problem:
    """Return the problem of `python -m evidence clicks`, with a learned model."""
    problem = reference_problem(seed, n_new=0)
    model = fit(problem.log, rewards="bernoulli", kind="arms", bootstrap=0).model
    users = KnownUsers(model, problem.rates, noise=None)
    return Problem(users, UsersOfModel(model), model, model.n_actions, horizon)


def problems(data: str | None) -> Mapping[str, Callable[[int], Problem]]:
    """Return, by name, functions that make each problem from a seed."""
    return {
        **{
            f"sigma0={sigma0:g}, {horizon} rounds": partial(synthetic, sigma0, horizon)
            for sigma0 in (0.05, 0.2)
            for horizon in (200, 500)
        },
        "movielens-1m": partial(movielens, data, 200),
        "clicks": partial(clicks, 100),
        **{f"family {name}": partial(family, name, 100) for name in PROBLEMS},
    }


# Tune on users drawn from the model, then play the winner and all candidates on the truth.
#
# `python -m evidence written` compares recommended policies with popularity on real users.

RUNS = 1000
_SHARE = 0.05  # largest excess regret of auto, as a fraction of the best candidate's regret
_ERRORS = 2.0  # or this many paired standard errors, if they are larger
_IDS_SETTING, _IDS_RUNS = "sigma0=0.2, 500 rounds", 4000


class AutoExperiment(Experiment):
    """Test whether tuning on the model finds the policy that is best on the truth."""

    name = "auto"
    help = "the policy that tune chooses, beside its candidates, on problems it was not tuned on"
    options = (
        Option("runs", "runs of a problem", RUNS, positive),
        Option("effort", "of tune", 1.0, above_zero),
        Option("problems", "only these; by default all", several=True, metavar="PROBLEM"),
        DATA,
    )

    def choices(self, arguments: argparse.Namespace) -> Mapping[str, Iterable[str]]:
        return {"problems": problems(None)}

    def measure(self, work: Work) -> Report:
        options = work.options
        makers = problems(options.data)
        rows: list[dict[str, Any]] = []
        claims: list[Claim] = []
        body: list[tuple[str, ...]] = []
        for name in options.problems:
            problem = makers[name](options.seed)
            tuning = _tune(problem, work)
            results = _play(work, name, problem, [row.policy for row in tuning.table])
            claims.append(_near_best(name, tuning.winner, results))
            rows += policy_rows({name: results})
            body.append(_summary(name, tuning, results))
            if name == _IDS_SETTING:
                many = {"n_runs": max(options.runs, _IDS_RUNS), "seed": options.seed + 1}
                pair = [tuning.winner, "mmIDS"]
                against_ids = _play(work, f"{name}, against mmIDS", problem, pair, **many)
                claims.append(_below_ids(name, tuning.winner, against_ids))
        columns = ("problem", "auto", "its regret", "best candidate", "its regret", "mmIDS", "mmTS")
        return Report(
            policies=rows,
            claims=claims,
            tables=[Table(f"Regret, {options.runs} runs", columns, body)],
        )


def _tune(problem: Problem, work: Work) -> Tuning:
    candidates = default_candidates(problem.model, problem.horizon, problem.n_actions)
    return tune_in(
        problem.tuned, problem.horizon, candidates, seed=work.options.seed + 1000,
        effort=work.options.effort, executor=work.executor, progress=work.progress,
    )  # fmt: skip


def _play(work: Work, name: str, problem: Problem, texts: list[str], **changes: int) -> Results:
    policies = makers({text: text for text in texts}, horizon=problem.horizon)
    changes["horizon"] = problem.horizon
    return work.play("auto", Setting(name, problem.played, policies), **changes)


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
    cells = ("" if text is None else str(results[text].regret) for text in others)
    winner = tuning.winner
    return name, winner, str(results[winner].regret), best, str(results[best].regret), *cells
