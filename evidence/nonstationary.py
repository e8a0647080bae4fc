"""Non-stationary latent bandits (Hong et al. 2020): `python -m evidence nonstationary`.

The paper (arXiv 2012.00386) plays Thompson sampling that knows how the state moves against policies
that take it as fixed, that forget, or that mix experts (Exp4.S). The numbers of its experiments
could not be had; these are ours: the 5 states and 10 actions of the synthetic problem of "Latent
bandits revisited", whose state moves every 20 or 100 rounds on average. Here the rewards of the
states and the transition matrix are learned by `fit` from a log, which the paper takes as given.

With `--data`, students of ASSISTments 2015 are asked the same: does their state move, and what is
it worth to know?
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evidence.bench.problem import STANDARD
from evidence.bench.problems import PROBLEMS
from evidence.dynamics import generate
from latentbandits.environments import UsersOfModel
from latentbandits.experiments.experiment import Experiment, Work
from latentbandits.learning.assess.heldout import score
from latentbandits.learning.assess.replay import PolicyPlayer, replay
from latentbandits.learning.assess.report import mean_stay
from latentbandits.learning.fitting import fit
from latentbandits.learning.learners import align
from latentbandits.learning.logs.rows import Log
from latentbandits.models import GaussianArms
from latentbandits.models.composed.markov import Markov
from latentbandits.options import Option, positive
from latentbandits.policies import EXP4, UCB1, SlidingWindow, mmGreedy, mmTS, mTS, mUCB
from latentbandits.policies.checked import Outcome
from latentbandits.policies.classic import ExpertWeights
from latentbandits.report.report import Claim, Estimate, Report, Table, all_positive
from latentbandits.simulation.simulate import simulate

N_STATES, N_ACTIONS, NOISE = 5, 10, 0.5
STAYS = (20, 100)
"""Rounds between two moves, on average."""

ROUNDS, HORIZON, PLAYERS = 100, 300, 300
"""Rows of a logged user; rounds of a session, and sessions on each problem."""

STILL = ("mTS", "mmTS", "mUCB")
WITHOUT = ("UCB1", "window UCB1", "Exp4.S")
LEARNED = ("mTS, learned", "mmTS, learned")
TRUE = ("mTS, true matrix", "mTS, true model")
N_PATHS = 8
"""Paths per state along which mmTS follows users' uncertain rewards."""


@dataclass(frozen=True, eq=False)
class Exp4S(EXP4):
    """EXP4 whose weights are mixed with uniform ones after every round, so that no expert is lost.

    Args:
        mixing: the share of the uniform weights: how often the best expert changes.
    """

    mixing: float = 0.05

    def _learn(self, belief: ExpertWeights, outcome: Outcome) -> ExpertWeights:
        after = super()._learn(belief, outcome)
        rate = self._rate(after.rounds + 1, N_ACTIONS)[:, None]
        weights = np.exp(belief.log_weights - rate * (after.losses - belief.losses))
        weights /= weights.sum(axis=1, keepdims=True)
        mixed = (1 - self.mixing) * weights + self.mixing / weights.shape[1]
        return after._replace(log_weights=np.log(mixed))


class Played(NamedTuple):
    """What sessions on a problem lost, by policy: one value for each session."""

    chosen: str
    n_states: int
    regret: dict[str, Any]


def play(stay: int, n_users: int, seed: int) -> Played:
    """Learn from a log of a problem whose states last `stay` rounds; play with new users."""
    rng = np.random.default_rng([seed, stay])
    rewards = GaussianArms(rng.random((N_STATES, N_ACTIONS)), NOISE)
    truth = Markov.switching(rewards, 1 / stay)
    log = generate(truth, n_users, ROUNDS, rng)
    plain: dict[str, Any] = {"kind": "arms", "bootstrap": 0, "assess": False, "seed": seed}
    still = fit(log, dynamics="none", **plain).model
    result = fit(log, **plain)
    learned = result.model
    players: dict[str, Any] = {
        "UCB1": UCB1(N_ACTIONS),
        "window UCB1": SlidingWindow(UCB1(N_ACTIONS), _window(stay)),
        "Exp4.S": Exp4S(still, horizon=stay, mixing=1 / stay),
        "mTS": mTS(still),
        "mmTS": mmTS(still),
        "mUCB": mUCB(still, horizon=HORIZON),
        "mTS, learned": mTS(learned),
        "mTS, true model": mTS(truth),
    }
    if learned.transition is not None:
        first = learned.state_prior
        uncertain = Markov(learned.model, learned.transition, N_PATHS, first)
        players["mmTS, learned"] = mmTS(uncertain)
    if learned.n_states == N_STATES:
        order = align(rewards.means, learned.expected_rewards(None)[0])
        players["mTS, true matrix"] = mTS(
            Markov(learned.model, truth.transition[np.ix_(order, order)], 0)
        )
    played = simulate(players, UsersOfModel(truth), n_runs=PLAYERS, horizon=HORIZON, seed=seed)
    regret = {name: result.per_run("regret") for name, result in played.items()}
    return Played(result.report["dynamics"]["chosen"], learned.n_states, regret)


def _window(stay: int) -> int:
    """Return four rounds for each action and root of the stay, as in `evidence drift`."""
    return min(HORIZON, round(4 * N_ACTIONS * math.sqrt(stay)))


# Students of ASSISTments 2015, whose answers are in their order.

ANSWERS = PROBLEMS["assistments-2015"]
MENU, ASKED = 3, 20
"""Consecutive answers of which a round offers one, and rounds of a session."""


def students(folder: Path, seed: int) -> tuple[Table, list[Claim]]:
    """Learn from students with a state that stands still and one that moves; play others."""
    train, test = ANSWERS.load(folder, seed, STANDARD)
    test = test.of_events(np.bincount(train.actions, minlength=train.n_actions)[test.actions] > 0)
    plain: dict[str, Any] = {"kind": "arms", "bootstrap": 0, "assess": False, "seed": seed}
    auto = fit(train, **plain)
    fits = {"none": fit(train, dynamics="none", **plain), "markov": auto}
    found = auto.report["dynamics"]
    if found["chosen"] == "none":
        fits["markov"] = fit(train, dynamics="markov", **plain)
    scores = {name: score(one.model, test).by_user() for name, one in fits.items()}
    nats = Estimate.from_values(scores["markov"] - scores["none"])
    kept = Estimate(found["nats_per_user"], found["stderr"])
    players = {
        name: PolicyPlayer(mmGreedy(one.model), train.n_actions) for name, one in fits.items()
    }
    played = replay(players, in_order(test), menus=True, most_rounds=ASKED, seed=seed)
    first, whole = (played.difference("markov", "none", n) for n in (ASKED // 2, ASKED))
    model = fits["markov"].model
    stays = ", ".join(f"{stay:.0f}" for stay in mean_stay(model.transition))
    levels = ", ".join(f"{level:.0%}" for level in model.expected_rewards(None)[0].mean(axis=1))
    rows: list[tuple[str, ...]] = [
        ("fit keeps", f"{found['chosen']}, {kept:+} nats"),
        ("nats a student, of others", f"{nats:+}"),
        ("answers that a state lasts", stays),
        ("correct answers in it", levels),
        (f"gain in rounds 1-{ASKED // 2}", f"{first:+}"),
        (f"gain in rounds 1-{ASKED}", f"{whole:+}"),
    ]
    title = f"A state that moves less one that stands still: {train.n_users:,} students"
    claim = Claim(
        "students move",
        "a moving state predicts the answers of other students, in their order, better",
        "more than two errors", f"{nats:+}", nats.mean > 2 * nats.stderr,
    )  # fmt: skip
    return Table(title, ("students", "markov"), rows), [claim]


def in_order(log: Log) -> Log:
    """Return the log with lists of `MENU` consecutive rows of a user, without rows left over."""
    place = np.arange(log.n_events) - log.starts[log.users]
    whole = place < np.diff(log.starts)[log.users] // MENU * MENU
    menu = log.starts[log.users] + place // MENU
    return replace(log, lists=menu).of_events(whole)


class NonStationaryExperiment(Experiment):
    """Policies that learned how the state moves, against policies that forget or stand still."""

    name = "nonstationary"
    help = "a state that moves: rewards and moves learned from logs, against policies that forget"
    options = (
        Option("problems", "problems for each length of stay", 2, positive),
        Option("users", "users of a log", 2_000, positive),
        Option(
            "data", "folder with the data sets, to ask students", "", metavar="DIR", recorded=False
        ),
    )

    def check(self, arguments: argparse.Namespace) -> None:
        file = Path(arguments.data, ANSWERS.files[0])
        if arguments.data and not file.is_file():
            raise ValueError(f"there is no {file}")

    def measure(self, work: Work) -> Report:
        options = work.options
        jobs = {
            stay: [(stay, options.users, options.seed + i) for i in range(options.problems)]
            for stay in STAYS
        }
        names = (*WITHOUT, *STILL, *LEARNED, *TRUE)
        regrets: dict[int, dict[str, Any]] = {}
        claims: list[Claim] = []
        for stay, found in work.map_groups("nonstationary", play, jobs).items():
            shared = [name for name in names if all(name in one.regret for one in found)]
            regret = {n: np.concatenate([one.regret[n] for one in found]) for n in shared}
            regrets[stay] = regret
            kept = sum(one.chosen == "markov" and one.n_states == N_STATES for one in found)
            claims += [
                Claim(f"found {stay}", "fit finds the moving state and its five values",
                      "all logs", f"{kept} of {len(found)}", kept == len(found)),
                *(_beats_all(policy, regret, stay) for policy in LEARNED if policy in regret),
                _keeps(regret, stay),
            ]  # fmt: skip
        estimates = {
            stay: {name: str(Estimate.from_values(lost)) for name, lost in regret.items()}
            for stay, regret in regrets.items()
        }
        body = [(name, *(estimates[stay].get(name, "") for stay in STAYS)) for name in names]
        columns = ("policy", *(f"a move every {stay} rounds" for stay in STAYS))
        title = f"Regret: {N_ACTIONS} actions, {N_STATES} states, noise {NOISE:g}, {HORIZON} rounds"
        tables = [Table(title, columns, body)]
        if options.data:
            table, more = students(Path(options.data), options.seed)
            tables.append(table)
            claims += more
        return Report(
            settings={"stays": list(STAYS), "horizon": HORIZON, "sessions": PLAYERS},
            claims=claims,
            tables=tables,
        )


def _beats_all(policy: str, regret: dict[str, Any], stay: int) -> Claim:
    """Claim that a policy loses less than all that do not know how the state moves."""
    leads = {
        other: Estimate.from_values(regret[other] - regret[policy]) for other in (*WITHOUT, *STILL)
    }
    least = min(leads, key=lambda other: leads[other].mean)
    return Claim(
        f"{policy}, {stay}", f"{policy}: less regret than all that forget or stand still",
        "more than two errors", f"{leads[least]:+} less than {least}", all_positive(leads.values()),
    )  # fmt: skip


def _keeps(regret: dict[str, Any], stay: int) -> Claim:
    """Claim that what is learned keeps most of the gain of the truth over a state that is fixed."""
    best, mine = (
        float((regret["mTS"] - regret[policy]).mean()) for policy in ("mTS, true model", LEARNED[0])
    )
    return Claim(
        f"gain, {stay}",
        "mTS with what was learned keeps the gain of the true model over a fixed state",
        "at least 80%", f"{mine / best:.0%}", mine >= 0.8 * best,
    )  # fmt: skip
