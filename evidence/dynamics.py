"""Users whose state moves, learned from logs: `python -m evidence dynamics`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from latentbandits.environments import UsersOfModel
from latentbandits.experiments.experiment import Experiment, Work
from latentbandits.learning.assess.report import mean_stay
from latentbandits.learning.fitting import fit
from latentbandits.learning.learners import align
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.transitions import UserSequence, fit_transition
from latentbandits.models import GaussianArms
from latentbandits.models.checks import FloatArray
from latentbandits.models.composed.markov import Markov
from latentbandits.options import Option, positive
from latentbandits.policies import mmGreedy, mTS
from latentbandits.report.report import Claim, Report, Table
from latentbandits.simulation.simulate import simulate

N_STATES, N_ACTIONS, STAY = 4, 8, 30.0
USERS, ROUNDS = 5_000, 60
STILL_USERS = 500

NOISE = {"well separated": 0.3, "overlapping": 0.5, "hardly separable": 0.6}
"""Noise of rewards whose means are uniform in [0, 1]: states differ by .41 on average (root mean
square), so that a reward tells two states apart by .9, .33 and .23 nats."""

JUDGED = ("well separated", "overlapping")
"""Levels whose logs hold enough information for the claims: see the columns of the oracle."""

PLAYERS, HORIZON = 500, 120
POLICIES: dict[str, Any] = {"mmGreedy": mmGreedy, "mTS": mTS}
"""The policies that are played on the still, the learned and the true model. The claim is about
mmGreedy: mTS keeps exploring a state that moves, and may lose by knowing that it does."""


class Errors(NamedTuple):
    """Errors of a transition matrix."""

    average: float = np.nan  # relative, of the mean stay, averaged over states
    stay: float = np.nan  # the largest relative error of a state's mean stay
    move: float = np.nan  # the largest error of an entry off the diagonal

    @classmethod
    def of(cls, rows: FloatArray, truth: FloatArray) -> Errors:
        stays, off = mean_stay(rows), ~np.eye(N_STATES, dtype=bool)
        return cls(
            float(abs(stays.mean() / STAY - 1)),
            float(np.abs(stays / STAY - 1).max()),
            float(np.abs(rows - truth)[off].max()),
        )


class Outcome(NamedTuple):
    """A fit compared with the truth; without a moving state of four, errors are NaN."""

    chosen: str
    n_states: int
    learned: Errors = Errors()
    oracle: Errors = Errors()  # of maximum likelihood if rewards of each state are known
    gains: tuple[float, ...] = ()  # over the still model: learned and true, of each of POLICIES


def generate(truth: Any, n_users: int, n_rounds: int, rng: np.random.Generator) -> Log:
    """Return a log of users drawn from `truth`, whose actions are uniformly random."""
    users = UsersOfModel(truth).start(n_users, n_rounds, rng)
    actions = rng.integers(truth.n_actions, size=(n_rounds, n_users))
    everyone = np.arange(n_users)
    rewards = [users.round(t, rng).rewards[everyone, action] for t, action in enumerate(actions)]
    return Log(
        np.repeat(everyone, n_rounds),
        actions.T.ravel(),
        np.transpose(rewards).ravel(),
        tuple(map(str, range(n_users))),
        tuple(map(str, range(truth.n_actions))),
    )


def learn_moves(noise: float, n_users: int, seed: int) -> Outcome:
    """Learn from a log whose users' states last 30 rounds, and compare with the truth.

    The oracle knows the rewards of each state and starts at the true matrix: its errors are the
    ones that the log itself leaves.
    """
    rng = np.random.default_rng([seed, 1])
    still = GaussianArms(rng.random((N_STATES, N_ACTIONS)), noise)
    truth = Markov.switching(still, 1 / STAY)
    log = generate(truth, n_users, ROUNDS, rng)
    result = fit(log, kind="arms", bootstrap=0, assess=False, seed=seed)
    chosen, model = result.report["dynamics"]["chosen"], result.model
    if chosen == "none" or model.n_states != N_STATES:
        return Outcome(chosen, model.n_states)
    order = align(model.expected_rewards(None)[0], still.means)
    learned = Errors.of(model.transition[np.ix_(order, order)], truth.transition)
    users = zip(np.split(log.actions, log.starts[1:-1]), np.split(log.rewards, log.starts[1:-1]),
                strict=True)  # fmt: skip
    known = fit_transition(still, [UserSequence(*one) for one in users], start=truth.transition)
    oracle = Errors.of(known.transition, truth.transition)
    fixed = fit(log, kind="arms", bootstrap=0, assess=False, seed=seed, dynamics="none")
    models = {"still": fixed.model, "learned": model, "true": truth}
    players = {
        f"{name}, {kind}": policy(known_model)
        for name, policy in POLICIES.items()
        for kind, known_model in models.items()
    }
    played = simulate(players, UsersOfModel(truth), n_runs=PLAYERS, horizon=HORIZON, seed=seed)
    gains = tuple(
        played.difference(f"{name}, {kind}", f"{name}, still", "reward").mean
        for name in POLICIES
        for kind in ("learned", "true")
    )
    return Outcome(chosen, model.n_states, learned, oracle, gains)


def learn_still(noise: float, seed: int) -> Outcome:
    """Learn from a log of users whose states stand still."""
    rng = np.random.default_rng([seed, 2])
    still = GaussianArms(rng.random((N_STATES, N_ACTIONS)), noise)
    log = generate(still, STILL_USERS, ROUNDS, rng)
    result = fit(log, kind="arms", bootstrap=0, assess=False, seed=seed)
    return Outcome(result.report["dynamics"]["chosen"], result.model.n_states)


class DynamicsExperiment(Experiment):
    """Recover how states move from generated logs, and leave states alone that stand still."""

    name = "dynamics"
    help = "how a latent state moves, learned from logs: recovery, false alarms, and gain"
    options = (
        Option("moving", "logs of each noise whose states move", 2, positive),
        Option("still", "logs whose states stand still", 20, positive),
        Option("users", "users of a log whose states move", USERS, positive),
    )

    def measure(self, work: Work) -> Report:
        options = work.options
        moving = {
            name: [(noise, options.users, options.seed + i) for i in range(options.moving)]
            for name, noise in NOISE.items()
        }
        levels = list(NOISE.values())
        still = [(levels[i % len(levels)], options.seed + i) for i in range(options.still)]
        moved = work.map_groups("dynamics, states that move", learn_moves, moving)
        stood = work.map("dynamics, states that stand still", learn_still, still)
        left_alone = sum(one.chosen == "none" for one in stood)
        rows: list[tuple[str, ...]] = []
        claims: list[Claim] = []
        for name, found in moved.items():
            row, more = _judged(name, found)
            rows.append(row)
            claims += more
        claims.append(
            Claim("still", "states that stand still are left alone", "on 19 of 20 logs",
                  f"{left_alone} of {len(stood)}", left_alone >= 0.95 * len(stood))
        )  # fmt: skip
        title = (
            "Largest errors of what is learned about how states move, and in brackets of maximum "
            "likelihood if the rewards of each state are known"
        )
        columns = ("states", "kept, with 4 states", "mean stay", "worst state's stay",
                   "worst move", "gain, of the true matrix's", "that gain, mmGreedy, a round",
                   "that gain, mTS")  # fmt: skip
        return Report(
            settings={"users": options.users, "rounds": ROUNDS, "stay": STAY},
            claims=claims,
            tables=[Table(title, columns, rows)],
        )


def _judged(name: str, found: Sequence[Outcome]) -> tuple[tuple[str, ...], list[Claim]]:
    """Return the row of a level of noise, and its claims."""
    kept = sum(one.chosen == "markov" and one.n_states == N_STATES for one in found)
    learned = Errors(*np.max([one.learned for one in found], axis=0).tolist())
    oracle = Errors(*np.max([one.oracle for one in found], axis=0).tolist())
    gains = [one.gains for one in found if one.gains]
    shares = [gain[0] / gain[1] for gain in gains]
    told = ", ".join(f"{share:.0%}" for share in shares)
    row = (
        f"{name} (noise {NOISE[name]:g})",
        f"{kept} of {len(found)}",
        f"{learned.average:.1%} ({oracle.average:.1%})",
        f"{learned.stay:.1%} ({oracle.stay:.1%})",
        f"{learned.move:.4f} ({oracle.move:.4f})",
        told,
        *(", ".join(f"{gain[i]:+.4f}" for gain in gains) for i in (1, 3)),
    )
    claims = [
        Claim(f"gain {name}", "the gain over a still model is that of the true matrix",
              "at least 80%", told, bool(shares) and min(shares) >= 0.8),
        Claim(f"stay {name}", "the mean stay is recovered", "within 10%",
              f"{learned.average:.1%}", learned.average < 0.1),
        Claim(f"moves {name}", "moves off the diagonal are recovered", "within .004",
              f"{learned.move:.4f}", learned.move < 0.004),
    ]  # fmt: skip
    return row, claims if name in JUDGED else claims[:1]
