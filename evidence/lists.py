"""Lists of actions in a cascade: `python -m evidence lists`.

Random problems of S = 5 states, K = 30 actions and lists of 4 are compared with an independent
implementation, whose mean clicks per list are `REFERENCE`. On problems of low click rates, lists
that are unrolled on the branch of no click are compared with lists that are not.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from evidence import list_logs
from latentbandits.beliefs.joint import JointBelief
from latentbandits.environments.from_model import UsersOfModel
from latentbandits.experiments import experiment as frame
from latentbandits.models.arms.dirichlet import BernoulliArms
from latentbandits.models.checks import FloatArray
from latentbandits.models.clicks import Cascade, ClickModel
from latentbandits.models.numerics.arrays import sample
from latentbandits.models.protocol import Model
from latentbandits.options import Option, positive
from latentbandits.policies import UCB1, Popularity, mIDS, mmGreedy, mmTS, mTS
from latentbandits.policies.checked import (
    Asked,
    JointPolicy,
    LargestPosteriorScore,
    LargestScore,
    Outcome,
)
from latentbandits.report.report import Claim, Estimate, Report, Table

N_STATES, N_ACTIONS, LENGTH, LISTS = 5, 30, 4, 20
PROBLEMS, USERS = 12, 1_000
LOGS, EXAMINATION_PROBLEMS = 1_000, 5
WINDOWS = (1, 3, 10, 20)
"""Numbers of lists H; clicks are averaged over lists 1..H."""

KINDS = {"m": 1e9, "mm": 20.0}
"""Observations that a state's rates are worth: users have these rates, or rates around them."""

REFERENCE: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "m": {
        "knowing the user": (0.867, 0.870, 0.871, 0.871),
        "mmGreedy unrolled": (0.745, 0.761, 0.790, 0.813),
        "mmGreedy, best L": (0.742, 0.758, 0.786, 0.811),
        "TS unrolled": (0.683, 0.711, 0.769, 0.806),
        "TS, a draw per position": (0.680, 0.709, 0.768, 0.806),
        "TS, best L of one draw": (0.635, 0.665, 0.736, 0.786),
        "popularity": (0.742, 0.745, 0.744, 0.743),
        "TS-Cascade, no model": (0.484, 0.491, 0.519, 0.544),
        "UCB1, no model": (0.489, 0.490, 0.502, 0.512),
    },
    "mm": {
        "knowing the user": (0.900, 0.902, 0.902, 0.902),
        "mmGreedy unrolled": (0.727, 0.748, 0.786, 0.810),
        "mmGreedy, best L": (0.727, 0.747, 0.785, 0.809),
        "TS unrolled": (0.654, 0.683, 0.744, 0.785),
        "TS, a draw per position": (0.650, 0.679, 0.743, 0.784),
        "TS, best L of one draw": (0.612, 0.646, 0.710, 0.759),
        "popularity": (0.727, 0.730, 0.729, 0.729),
        "TS-Cascade, no model": (0.495, 0.509, 0.538, 0.572),
        "UCB1, no model": (0.500, 0.499, 0.517, 0.529),
    },
}
"""Mean clicks per list of an independent implementation on 12 other problems of 1,000 users."""

ROUNDING = 0.001 / math.sqrt(6)
"""The standard deviation of a difference of two figures that are rounded to three digits."""

ERRORS = 3.0
"""Combined standard errors beyond which a difference counts."""


@dataclass(frozen=True)
class NotUnrolled(Cascade):
    """A cascade whose positions are all decided on the belief before the list."""

    unrolled: ClassVar[bool] = False


def one_generator(belief: FloatArray, asked: Asked) -> np.random.Generator:
    """Return a generator that is the same at every position of a list that is not unrolled."""
    generator = repr(asked.rng.bit_generator.state).encode()
    return np.random.default_rng([zlib.crc32(belief.tobytes()), zlib.crc32(generator)])


@dataclass(frozen=True, eq=False)
class OneDraw(LargestPosteriorScore[JointBelief], JointPolicy):
    """Thompson sampling that shows the best L actions of one draw.

    The draw is a function of the belief and of the generator, which no position advances, so the
    positions of a list share it.
    """

    row_wise: ClassVar[bool] = False
    model: Model

    def _scores(self, belief: JointBelief, asked: Asked) -> FloatArray:
        rng = one_generator(belief.log_weights, asked)
        state = sample(belief.log_weights, rng)
        drawn = self.model.sample_rewards(belief.parameters, asked.context, state[:, None], rng)
        return drawn[:, 0]


class Clicks(NamedTuple):
    """Views and clicks of every action, and the number of lists."""

    views: FloatArray  # (n_sessions, n_actions)
    clicks: FloatArray
    lists: FloatArray  # (n_sessions,)


@dataclass(frozen=True, eq=False)
class TSCascade(LargestScore[Clicks]):
    """TS-Cascade (Cheung, Tan & Zhong 2019): the best L of m + z s, with one normal z for a list.

    m is an action's click rate, n its views, t the number of the list, and s the larger one of
    sqrt(m (1 - m) log(t + 1) / (n + 1)) and log(t + 1) / (n + 1).
    """

    row_wise: ClassVar[bool] = False
    n_actions: int

    def init(self, n_sessions: int = 1) -> Clicks:
        shape = (n_sessions, self.n_actions)
        return Clicks(np.zeros(shape), np.zeros(shape), np.zeros(n_sessions))

    def checked_context(self, context: Any, n_sessions: int) -> tuple[None, int]:
        return None, self.n_actions

    def _scores(self, belief: Clicks, asked: Asked) -> FloatArray:
        rng = one_generator(belief.views, asked)
        draw = rng.standard_normal((len(belief.lists), 1))
        mean = belief.clicks / np.maximum(belief.views, 1)
        bonus = np.log(belief.lists + 2)[:, None] / (belief.views + 1)
        scores: FloatArray = mean + draw * np.maximum(np.sqrt(mean * (1 - mean) * bonus), bonus)
        return scores + 1e-9 * rng.random(scores.shape)  # ties at random, without another draw

    def _learn(self, belief: Clicks, outcome: Outcome) -> Clicks:
        played = np.arange(self.n_actions) == outcome.action[:, None]
        return Clicks(
            belief.views + played,
            belief.clicks + played * outcome.reward[:, None],
            belief.lists + outcome.moves,
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """Click rates of every state and action, and the states' prior."""

    rates: FloatArray  # (n_states, n_actions)
    prior: FloatArray  # (n_states,)

    def model(self, strength: float) -> BernoulliArms:
        """Return the model whose rates are worth `strength` observations."""
        return BernoulliArms(strength * self.rates, strength * (1 - self.rates), self.prior)


def random_problem(seed: int) -> Problem:
    """Return a problem of the reference: rates log-uniform in 2 to 50%, 30% of them common.

    Each entry of the table of states and actions is, with probability 0.3, the action's common
    rate. (If whole actions are common instead, popularity is stronger: 0.784 clicks per list.)
    """
    rng = np.random.default_rng([seed, 25])
    drawn = np.exp(rng.uniform(np.log(0.02), np.log(0.5), (N_STATES + 1, N_ACTIONS)))
    common = rng.random((N_STATES, N_ACTIONS)) < 0.3
    rates = np.where(common, drawn[-1], drawn[:-1])
    return Problem(rates, rng.dirichlet(np.full(N_STATES, 3.0)))


def opposite_problem(seed: int) -> Problem:
    """Return a problem of kinds that want opposite things: 10% on actions of their own, else 1%."""
    rng = np.random.default_rng([seed, 26])
    own = np.arange(N_ACTIONS) % N_STATES == np.arange(N_STATES)[:, None]
    rates = np.where(own, rng.uniform(0.08, 0.1, own.shape), rng.uniform(0.01, 0.012, own.shape))
    return Problem(rates, rng.dirichlet(np.full(N_STATES, 30.0)))


def same_problem(seed: int) -> Problem:
    """Return a problem of kinds that want the same: unrolling cannot be worth anything."""
    rates = opposite_problem(seed).rates[:1].repeat(N_STATES, axis=0)
    return Problem(rates, np.full(N_STATES, 1 / N_STATES))


def _unrolled(thompson: Any) -> frame.Policies:
    return {"mmGreedy unrolled": mmGreedy, "TS unrolled": thompson, "popularity": Popularity}


def _not_unrolled(thompson: Any) -> frame.Policies:
    # Kveton et al. (2015) use sqrt(1.5 log t / n), UCB1 here sqrt(2 log t / n) times its scale.
    return {
        "mmGreedy, best L": mmGreedy,
        "TS, a draw per position": thompson,
        "TS, best L of one draw": OneDraw,
        "TS-Cascade, no model": TSCascade(N_ACTIONS),
        "UCB1, no model": UCB1(N_ACTIONS, math.sqrt(0.75)),
    }


Curves = Mapping[str, FloatArray]
"""Mean clicks by list of each policy, `(LISTS,)`."""


class ListsExperiment(frame.Experiment):
    """Lists in a cascade, unrolled and not."""

    name = "lists"
    help = "lists of actions in a cascade: beside an independent implementation, and what they gain"
    options = (
        Option("problems", "random problems of each kind", PROBLEMS, positive),
        Option("users", "users of each problem", USERS, positive),
        Option("logs", "generated logs that estimators are checked on", LOGS, positive),
        Option("data", "folder of Open Bandit's sample (uniform.csv)", metavar="FOLDER",
               recorded=False),
    )  # fmt: skip

    def measure(self, work: frame.Work) -> Report:
        claims, tables = [], []
        for kind, strength in KINDS.items():
            thompson = mTS if kind == "m" else mmTS
            played: Mapping[ClickModel, frame.Policies] = {
                Cascade(): _unrolled(thompson), NotUnrolled(): _not_unrolled(thompson),
            }  # fmt: skip
            problems = [random_problem(work.options.seed + i) for i in range(work.options.problems)]
            curves = [self._play(work, kind, p.model(strength), played) for p in problems]
            claims += _beside_reference(kind, curves)
            tables.append(_table(kind, curves))
        gains = self._gains(work)
        seed = work.options.seed
        found, table = list_logs.examination_claims(EXAMINATION_PROBLEMS, seed)
        bandit, bandit_tables = list_logs.open_bandit_claims(work.options.data, seed)
        estimated, estimates = list_logs.estimator_claims(work.options.logs, seed)
        return Report(
            claims=[*claims, *_gain_claims(gains), *found, *bandit, *estimated],
            tables=[*tables, _gain_table(gains), table, *bandit_tables, estimates],
            settings={"length": LENGTH, "lists": LISTS},
        )

    def _play(
        self, work: frame.Work, name: str, model: BernoulliArms,
        played: Mapping[ClickModel, frame.Policies],
    ) -> Curves:  # fmt: skip
        """Return the curves of all policies on the same users."""
        curves: dict[str, FloatArray] = {}
        for clicks, policies in played.items():
            setting = frame.Setting(name, UsersOfModel(model), policies)
            results = work.play(
                self.name, setting, n_runs=work.options.users, horizon=LISTS, length=LENGTH,
                click_model=clicks,
            )  # fmt: skip
            curves |= {policy: result.curve for policy, result in results.items()}
            curves["knowing the user"] = next(iter(results.values())).best_curve
        return curves

    def _gains(self, work: frame.Work) -> dict[tuple[str, str], Estimate]:
        """Compare unrolled lists with others where kinds want opposite things, or the same.

        Thompson policies are compared with the best L of one draw, others with the best L.
        """
        everyone = {"mTS": (mTS, OneDraw, "m"), "mmTS": (mmTS, OneDraw, "mm"),
                    "mmGreedy": (mmGreedy, mmGreedy, "m"), "mIDS": (mIDS, mIDS, "m")}  # fmt: skip
        gains = {}
        for where, draw in (("opposite", opposite_problem), ("the same", same_problem)):
            problems = [draw(work.options.seed + i) for i in range(work.options.problems)]
            for name, (unrolled, other, kind) in everyone.items():
                both: Mapping[ClickModel, frame.Policies] = {
                    Cascade(): {"unrolled": unrolled}, NotUnrolled(): {"other": other},
                }  # fmt: skip
                models = [problem.model(KINDS[kind]) for problem in problems]
                curves = [self._play(work, where, model, both) for model in models]
                gains[where, name] = _difference(curves, "unrolled", "other", LISTS)
        return gains


def _difference(curves: Sequence[Curves], policy: str, other: str, lists: int) -> Estimate:
    """Return the mean difference of clicks per list in lists 1 to `lists`, over the problems."""
    leads = [(one[policy] - one[other])[:lists].mean() for one in curves]
    return Estimate.from_values(np.array(leads))


def _beside_reference(kind: str, curves: Sequence[Curves]) -> list[Claim]:
    """Compare differences to popularity; the reference has the errors of as many other problems."""
    claims = []
    for policy, clicks in REFERENCE[kind].items():
        if policy == "popularity":
            continue
        measured, expected, errors = [], [], []
        for place, lists in enumerate(WINDOWS):
            lead = _difference(curves, policy, "popularity", lists)
            wanted = clicks[place] - REFERENCE[kind]["popularity"][place]
            measured.append(f"{lead:+}")
            expected.append(f"{wanted:+.3f}")
            own = lead.stderr * math.sqrt(1 + len(curves) / PROBLEMS)
            combined = math.hypot(own, ROUNDING)
            errors.append(abs(lead.mean - wanted) / combined)
        claim = "clicks over popularity agree with an independent implementation"
        predicted = f"{', '.join(expected)} in lists 1, 1-3, 1-10, 1-20, to {ERRORS:g} errors"
        found = f"{', '.join(measured)}: {max(errors):.1f} errors"
        claims.append(Claim(f"{kind} {policy}", claim, predicted, found, max(errors) <= ERRORS))
    return claims


def _gain_claims(gains: Mapping[tuple[str, str], Estimate]) -> list[Claim]:
    claims = []
    for (where, name), gain in gains.items():
        if where == "opposite":
            claim, bound = "unrolling pays where kinds want opposite things", "above 0 by 2 errors"
            holds = gain.mean > 2 * gain.stderr
        elif name == "mmTS":
            continue  # its users vary around their state, so they do not want the same
        else:
            claim, bound = "unrolling is worth nothing where all want the same", "within 0.001 of 0"
            holds = abs(gain.mean) < 0.001
        predicted = f"clicks per list {bound}"
        claims.append(Claim(f"{where} {name}", f"{name}: {claim}", predicted, f"{gain:+}", holds))
    return claims


def _gain_table(gains: Mapping[tuple[str, str], Estimate]) -> Table:
    places, names = (list(dict.fromkeys(part)) for part in zip(*gains, strict=True))
    rows = [(name, *(f"{gains[where, name]:+}" for where in places)) for name in names]
    title = f"Clicks per list that unrolling adds in lists 1-{LISTS}, by what kinds want"
    return Table(title, ("policy", *places), rows)


def _table(kind: str, curves: Sequence[Curves]) -> Table:
    rows = []
    for policy in REFERENCE[kind]:
        cells = [f"{np.mean([one[policy][:h].mean() for one in curves]):.3f}" for h in WINDOWS]
        leads = [_difference(curves, policy, "popularity", h) for h in (WINDOWS[0], WINDOWS[-1])]
        rows.append((policy, *cells, *(f"{lead:+}" for lead in leads)))
    columns = ("policy", "list 1", "1-3", "1-10", "1-20", "over popularity, list 1", "1-20")
    rates = "users have their state's rates" if kind == "m" else "users vary around their state"
    return Table(f"Clicks per list, {kind}: {rates}", columns, rows)
