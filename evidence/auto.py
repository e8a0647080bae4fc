"""The policy that `tune` chooses, compared with its candidates: `python -m evidence auto`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars

from evidence.families import PROBLEMS
from latentbandits.environments.from_model import UsersOfModel
from latentbandits.environments.protocol import Environment, Instances, Round
from latentbandits.environments.synthetic import Synthetic
from latentbandits.experiments.experiment import Experiment, Setting, Work, policy_rows
from latentbandits.experiments.movielens import DATA
from latentbandits.experiments.movielens_data import find_folder, load
from latentbandits.experiments.movielens_split import first_split
from latentbandits.learning import fit, user_hash
from latentbandits.learning.assess.replay import (
    HORIZONS,
    Player,
    PolicyPlayer,
    Replay,
    ScorePlayer,
    action_averages,
    replay,
)
from latentbandits.learning.logs.rows import Log, read_log
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.options import Option, above_zero, choose, positive
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.policies.registry import Inputs, build, parse
from latentbandits.report.report import Claim, Progress, Report, Table
from latentbandits.simulation import Results
from latentbandits.simulation.tune import ESTIMATES, Tuning, default_candidates, tune_in

__all__ = ["AutoExperiment"]


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


N_ITEMS, N_USERS, IMPRESSIONS = 20, 4000, 60


@dataclass(frozen=True, eq=False)
class NewClickers:
    """New users of the click problem; policies are given a learned model."""

    rates: FloatArray  # (n_states, n_items)
    model: Any

    def start(self, n_runs: int, horizon: int, rng: np.random.Generator) -> ClickRuns:
        return ClickRuns(self, rng.integers(len(self.rates), size=n_runs))


@dataclass(frozen=True, eq=False)
class ClickRuns:
    environment: NewClickers
    state: IntArray

    @property
    def model(self) -> Any:
        return self.environment.model

    def round(self, t: int, rng: np.random.Generator) -> Round:
        means = self.environment.rates[self.state]
        return Round(None, means, (rng.random(means.shape) < means).astype(np.float64))


def clicks(horizon: int, seed: int) -> Problem:
    """Return rare clicks of 3 kinds of users on 20 items, learned from 4,000 logged users.

    The generator is described in the project's notes on learning, section 3.
    """
    rng = np.random.default_rng(3 + seed)
    rates = np.clip(rng.gamma(1, 0.02, (3, N_ITEMS)), 0.002, 0.25)
    state = rng.integers(0, 3, N_USERS)
    item = rng.integers(N_ITEMS, size=(N_USERS, IMPRESSIONS))
    clicked = rng.random(item.shape) < rates[state[:, None], item]
    log = polars.DataFrame(
        {
            "user": np.repeat(np.arange(N_USERS), IMPRESSIONS).astype(str),
            "action": item.ravel().astype(str),
            "reward": clicked.ravel().astype(np.float64),
        }
    )
    result = fit(
        log, user="user", action="action", reward="reward", rewards="bernoulli", kind="arms",
        bootstrap=0,
    )  # fmt: skip
    model = result.model
    catalogue = result.catalogue
    order = np.array([int(name) for name in catalogue.ids])
    return Problem(
        NewClickers(rates[:, order], model), UsersOfModel(model), model, N_ITEMS, horizon
    )


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


# The recommended policy on real ratings of users who were not learned from.
#
# A fifth of the users is set aside. `fit` learns from the others, and recommends a policy by its
# own held-out users. That policy, `auto`, is then compared with popularity on the users that were
# set aside (`learning/assess/replay.py`): both rank films that the user has rated, and receive the
# rating.

AUTO, POPULARITY = "auto", "popularity"
BESIDE = ("mmGreedy", "mmTS")
"""Further policies on the same model that are played."""

_SET_ASIDE = 0.2
_SEED = 100  # added to the experiment's seed, so that `fit` holds out other users


class Played(NamedTuple):
    """The recommendation of `fit`, and the rewards of the users that were set aside."""

    auto: str
    replay: Replay


def movielens_1m(folder: str | None) -> Log:
    """Return the ratings of MovieLens 1M as a log."""
    data = load(find_folder(folder))
    frame = polars.DataFrame(
        {
            "user": data.user_ids[data.users],
            "action": data.movie_ids[data.movies],
            "reward": data.ratings,
        }
    )
    return read_log(frame, "user", "action", "reward")


def movielens_small(folder: Path) -> Log:
    """Return the ratings of MovieLens latest-small as a log."""
    if not (folder / "ratings.csv").is_file():
        raise ValueError(
            "MovieLens latest-small was not found: give the folder of its ratings.csv as --small"
        )
    return read_log(folder / "ratings.csv", "userId", "movieId", "rating", order="timestamp")


def real_logs(data: str | None, small: str | None) -> Mapping[str, Callable[[], Log]]:
    """Return, by problem name, functions that read each log; the small one may be beside `data`."""
    logs: dict[str, Callable[[], Log]] = {"replay movielens-1m": partial(movielens_1m, data)}
    folder = Path(small) if small else Path(data or ".").parent / "ml-latest-small"
    if small or (data and (folder / "ratings.csv").is_file()):
        logs["replay movielens-latest-small"] = partial(movielens_small, folder)
    return logs


def play_real_users(log: Log, seed: int, progress: Progress | None = None) -> Played:
    """Fit to four fifths of the users, and play the recommended policy on the others."""
    keys = user_hash.user_keys(log.user_ids)
    aside = user_hash.held_out(keys, round(_SET_ASIDE * log.n_users), seed + _SEED)
    train, users = (log.of_users(np.flatnonzero(part)) for part in (~aside, aside))
    result = fit(train, bootstrap=0, seed=seed, progress=progress)
    auto = result.report["judgement"]["recommended_policy"]
    features: Any = result.catalogue.features
    low, high = float(train.rewards.min()), float(train.rewards.max())
    inputs = Inputs(result.model, reward_range=(low, high), items=features)
    known = np.bincount(train.actions, minlength=log.n_actions) > 0
    users = users.of_events(known[users.actions])
    averages = ScorePlayer(action_averages(train))
    players: dict[str, Player] = {POPULARITY: averages}
    for name, text in {AUTO: auto, **{text: text for text in BESIDE}}.items():
        players[name] = (
            averages
            if parse(text).name == POPULARITY
            else PolicyPlayer(build(text, inputs), log.n_actions, features)
        )
    return Played(auto, replay(players, users, seed=seed, progress=progress))


def not_below_popularity(name: str, played: Played) -> list[Claim]:
    """Return a claim per horizon: auto is at most one standard error below popularity."""
    claims = []
    for horizon in played.replay.horizons:
        lead = played.replay.difference(AUTO, POPULARITY, horizon)
        claims.append(
            Claim(
                f"A {name}, {horizon} rounds",
                f"on real ratings of {played.replay.n_users(horizon)} held-out users auto, "
                f"{played.auto}, is not below popularity",
                f"reward of auto - popularity >= {-lead.stderr:.2g} (one standard error)",
                f"{lead:+}",
                lead.mean >= -lead.stderr,
            )
        )
    return claims


def replay_rows(name: str, played: Played) -> list[tuple[str, ...]]:
    """Return the table's rows: the reward of each policy and its lead over popularity."""
    replay = played.replay
    return [
        (
            name,
            policy if policy != AUTO else f"auto: {played.auto}",
            *(
                f"{replay.reward(policy, h).mean:.3f} "
                f"({replay.difference(policy, POPULARITY, h):+})"
                if h in replay.horizons
                else "too few users"
                for h in HORIZONS
            ),
        )
        for policy in replay.rewards
    ]


# Tune on users drawn from the model, then play the winner and all candidates on the truth.
#
# On real users, the winner is compared with popularity by replay of ratings (`real_users.py`).

RUNS = 1000
_SHARE = 0.05  # largest excess regret of auto, as a fraction of the best candidate's regret
_ERRORS = 2.0  # or this many paired standard errors, if they are larger
_REPLAY = ("log", "policy", "rounds 1-10", "rounds 1-20", "rounds 1-50")
_IDS_SETTING, _IDS_RUNS = "sigma0=0.2, 500 rounds", 4000


class AutoExperiment(Experiment):
    """Test whether tuning on the model finds the policy that is best on the truth."""

    name = "auto"
    help = "the policy that tune chooses, beside its candidates, on problems it was not tuned on"
    options = (
        Option("runs", "runs of a problem", RUNS, positive),
        Option("effort", "of tune", 1.0, above_zero),
        Option("problems", "only these; by default all", several=True, metavar="NAME"),
        DATA,
        Option("small", "a MovieLens latest-small folder (default: the folder ml-latest-small "
               "beside --data; without it that replay is left out)", metavar="DIR",
               recorded=False),
    )  # fmt: skip

    def check(self, arguments: argparse.Namespace) -> None:
        known = [*problems(None), *real_logs(arguments.data, arguments.small)]
        choose("problem", arguments.problems, known)

    def measure(self, work: Work) -> Report:
        options = work.options
        makers = problems(options.data)
        logs = real_logs(options.data, options.small)
        names = choose("problem", options.problems, [*makers, *logs])
        rows: list[dict[str, Any]] = []
        claims: list[Claim] = []
        body: list[tuple[str, ...]] = []
        real: list[tuple[str, ...]] = []
        for name in names:
            if name in logs:
                played = play_real_users(logs[name](), options.seed, work.progress)
                claims += not_below_popularity(name, played)
                rows += [row | {"setting": name} for row in played.replay.rows(POPULARITY)]
                real += replay_rows(name, played)
                continue
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
        tables = [
            Table(f"Regret, {options.runs} runs", columns, body),
            Table("Mean rating (over popularity)", _REPLAY, real),
        ]
        return Report(
            settings={"problems": names},
            policies=rows,
            claims=claims,
            tables=[table for table in tables if table.rows],
        )


def _tune(problem: Problem, work: Work) -> Tuning:
    return tune_in(
        problem.tuned,
        problem.horizon,
        default_candidates(problem.model, problem.horizon, problem.n_actions),
        seed=work.options.seed + 1000,
        effort=work.options.effort,
        executor=work.executor,
        progress=work.progress,
    )


def _play(work: Work, name: str, problem: Problem, texts: list[str], **changes: int) -> Results:
    policies = {text: partial(_make, text, problem.horizon) for text in dict.fromkeys(texts)}
    changes["horizon"] = problem.horizon
    return work.play("auto", Setting(name, problem.played, policies), **changes)


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
