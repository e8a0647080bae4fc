"""The loop's promotion on generated logs: worse candidates stay out, better ones pass.

Its estimators are tried on the simplest comparison too: a policy with the log that it made, from
which rewards are missing, more of some actions than of others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from evidence.loop_users import SimulatedUsers
from evidence.loop_visits import play
from latentbandits.evaluation import DecisionLog, evaluate
from latentbandits.evaluation.distribution import FixedDistribution
from latentbandits.experiments import experiment as frame
from latentbandits.loop.promotion import Side, Verdict, judge
from latentbandits.models import GaussianArms
from latentbandits.models.checks import FloatArray
from latentbandits.options import Option, positive
from latentbandits.policies import Exploring, mmGreedy, mTS, mUCB
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.report.report import Claim, Report, Table

N_STATES, N_ACTIONS, NOISE, ROUNDS = 3, 4, 0.5, 8
TRUE_SESSIONS = 10_000
WORSE, BETTER, RELABELLED, MISSING = 200, 100, 100, 100
MOST_MISSING = 0.8  # of an action's rewards
POLICIES = {"mTS": mTS, "mUCB": mUCB, "mmGreedy": mmGreedy}


class Try(NamedTuple):
    """A candidate for promotion, and what is true of it.

    Attributes:
        gain: candidate minus current over a session, as served, with its standard error.
        first_gain: the same in round 1.
    """

    kind: str
    policy: str
    explore: float
    current: GaussianArms
    candidate: GaussianArms
    log: DecisionLog
    gain: tuple[float, float]
    first_gain: float


def _random_truth(rng: np.random.Generator) -> FloatArray:
    return rng.uniform(0, 1, (N_STATES, N_ACTIONS))


def _pair(
    kind: str, truth: FloatArray, rng: np.random.Generator
) -> tuple[GaussianArms, GaussianArms]:
    """Return the current model and the candidate.

    "first": the candidate knows the best action of round 1 and gets the states wrong; the current
    model knows the states, and has a wrong idea of one action. "rough": both have errors, those
    of the candidate are larger. "better": the candidate's errors are much smaller. "later": both
    agree in round 1, and only the candidate knows the states. "relabelled": the same states in
    another order.
    """
    average = truth.mean(axis=0)
    current = truth + 0.1 * rng.standard_normal(truth.shape)
    candidate = truth + 0.3 * rng.standard_normal(truth.shape)
    if kind == "first":
        current[:, average.argmin()] += rng.uniform(0.2, 0.6)
        candidate = average - rng.uniform(0.2, 1.0) * (truth - average)
    elif kind == "better":
        current, candidate = candidate, truth + 0.05 * rng.standard_normal(truth.shape)
    elif kind == "later":
        current, candidate = average + 0.2 * (average - truth), truth
    elif kind == "relabelled":
        candidate = current[rng.permutation(N_STATES)]
    return GaussianArms(current, NOISE), GaussianArms(candidate, NOISE)


def tries(
    kinds: tuple[str, ...],
    number: int,
    seed: int,
    *,
    worse: bool | None = None,
    true_sessions: int = TRUE_SESSIONS,
) -> Iterator[Try]:
    """Yield candidates of some kinds in turn, with a log of the current model that explores.

    With `worse`, only candidates that are clearly worse (True) or better (False) over a session,
    by more than four standard errors of the simulated difference.
    """
    made, i = 0, 0
    while made < number:
        rng = np.random.default_rng([seed, i])
        kind = kinds[i % len(kinds)]
        name = list(POLICIES)[int(rng.integers(len(POLICIES)))]
        explore, n_sessions = float(rng.choice([0.2, 0.5])), int(rng.choice([2000, 8000]))
        i += 1
        users = SimulatedUsers(_random_truth(rng), NOISE, ROUNDS)
        current, candidate = _pair(kind, users.truth.means, rng)
        sides = [Exploring(POLICIES[name](model), explore) for model in (current, candidate)]
        gain, first = _true_gain(sides, users, true_sessions, rng)
        if worse is not None and (gain[0] > -4 * gain[1] if worse else gain[0] < 4 * gain[1]):
            continue
        log, _ = play(sides[0], users, n_sessions, ROUNDS, rng)
        made += 1
        yield Try(kind, name, explore, current, candidate, log, gain, first)


def _true_gain(
    sides: list[Exploring], users: SimulatedUsers, n: int, rng: np.random.Generator
) -> tuple[tuple[float, float], float]:
    """Return the candidate's gain over a session with its error, and its gain in round 1."""
    whole, first = (
        [play(side, users, n, rounds, rng)[1] for side in sides] for rounds in (ROUNDS, 1)
    )
    error = np.hypot(*(regret.std() / np.sqrt(n) for regret in whole))
    gains = [float(base.mean() - other.mean()) for base, other in (whole, first)]
    return (gains[0], float(error)), gains[1]


def verdict_of(one: Try) -> Verdict:
    """Judge a candidate as the loop does: both sides with the exploration of the service."""

    def side(model: GaussianArms) -> Side:
        policy: AnyPolicy = Exploring(POLICIES[one.policy](model), one.explore)
        return Side(policy, model, one.log)

    return judge(side(one.current), side(one.candidate))


def is_itself(seed: int, n_sessions: int = 500) -> bool:
    """Return whether a policy and the log that it made are identical by every estimator.

    Each action has its own share of missing rewards.
    """
    rng = np.random.default_rng([seed, 90])
    truth = _random_truth(rng)
    policy = FixedDistribution(rng.dirichlet(np.full(N_ACTIONS, 2.0)))
    log, _ = play(policy, SimulatedUsers(truth, NOISE, ROUNDS), n_sessions, ROUNDS, rng)
    missing = rng.random(log.action.shape) < rng.uniform(0, MOST_MISSING, N_ACTIONS)[log.action]
    log = replace(log, reward=np.where(missing, np.nan, log.reward))
    compared = evaluate(
        {"policy": policy}, log, model=GaussianArms(truth, NOISE), against="logged"
    ).differences
    return {row["verdict"] for row in compared} == {"identical"}


class PromotionExperiment(frame.Experiment):
    """Candidates that are worse, better or the same, for promotion by the loop."""

    name = "gate"
    help = "promotion by the loop: candidates worse over a session stay out, better ones pass"
    options = (
        Option("worse", "candidates that are worse", WORSE, positive),
        Option("better", "candidates that are better", BETTER, positive),
        Option("relabelled", "models with relabelled states", RELABELLED, positive),
        Option("missing", "logs with rewards that are missing by action", MISSING, positive),
    )

    def measure(self, work: frame.Work) -> Report:
        options = work.options
        plans: Mapping[str, tuple[tuple[str, ...], int, bool | None]] = {
            "worse": (("first", "rough"), options.worse, True),
            "better": (("better", "later"), options.better, False),
            "relabelled": (("relabelled",), options.relabelled, None),
        }
        judged: dict[str, list[tuple[Try, Verdict]]] = {}
        for number, (group, (kinds, count, worse)) in enumerate(plans.items()):
            work.progress.start(f"{group} candidates for promotion", count)
            judged[group] = []
            for one in tries(kinds, count, options.seed + 1000 * number, worse=worse):
                judged[group].append((one, verdict_of(one)))
                work.progress.advance(1)
        seeds = [(options.seed + i,) for i in range(options.missing)]
        same = work.map("logs against their own policy", is_itself, seeds)
        return Report(claims=_claims(judged, same), tables=[_table(judged)])


def _claims(judged: Mapping[str, list[tuple[Try, Verdict]]], same: list[bool]) -> list[Claim]:
    passed = {group: sum(v.activate for _, v in rows) for group, rows in judged.items()}
    counts = {group: f"{passed[group]} of {len(rows)}" for group, rows in judged.items()}
    return [
        Claim("G1", "candidates that are worse over a session are activated", "at most 5%",
              counts["worse"], passed["worse"] <= 0.05 * len(judged["worse"])),
        Claim("G2", "models with relabelled states are activated", "never",
              counts["relabelled"], passed["relabelled"] == 0),
        Claim("G3", "a policy is identical to its own log, from which rewards are missing by "
              "action", "in all logs", f"{sum(same)} of {len(same)}", all(same)),
    ]  # fmt: skip


def _table(judged: Mapping[str, list[tuple[Try, Verdict]]]) -> Table:
    rows: list[tuple[str, ...]] = []
    for group, tried in judged.items():
        for kind in dict.fromkeys(one.kind for one, _ in tried):
            some = [(one, verdict) for one, verdict in tried if one.kind == kind]
            first = str(sum(one.first_gain > 0 for one, _ in some))
            gain = f"{np.mean([one.gain[0] for one, _ in some]):.3f}"
            undecided = str(sum(v.reason.startswith("no decision") for _, v in some))
            rounds = f"{np.mean([v.horizon for _, v in some]):.1f}"
            passed = str(sum(v.activate for _, v in some))
            name = f"{group}: {kind}"
            rows.append((name, str(len(some)), first, gain, undecided, rounds, passed))
    head = ("candidates", "number", "better in round 1", "mean gain", "no decision",
            "rounds compared", "activated")  # fmt: skip
    return Table(f"Candidates for promotion, sessions of {ROUNDS} rounds", head, rows)
