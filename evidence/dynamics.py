"""Users whose state moves, learned from logs: `python -m evidence dynamics`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latentbandits.environments import UsersOfModel
from latentbandits.experiments.experiment import Experiment, Work
from latentbandits.learning.assess.report import mean_stay
from latentbandits.learning.fitting import fit
from latentbandits.learning.learners import align
from latentbandits.learning.logs.rows import Log
from latentbandits.models import GaussianArms
from latentbandits.models.checks import FloatArray
from latentbandits.models.composed.markov import Markov
from latentbandits.options import Option, positive
from latentbandits.policies import mTS
from latentbandits.report.report import Claim, Report, Table
from latentbandits.simulation.simulate import simulate

__all__ = ["DynamicsExperiment"]

N_STATES, N_ACTIONS, STAY = 4, 8, 30.0
USERS, ROUNDS = 5_000, 60
STILL_USERS = 1_000

NOISE = {"well separated": 0.3, "overlapping": 0.6}
"""Noise of rewards whose means are uniform in [0, 1]: states differ by .41 on average (root mean
square), so that a reward tells two states apart by .9 and .23 nats."""

PLAYERS, HORIZON = 500, 120


class Job(NamedTuple):
    """A generated log."""

    noise: float
    n_users: int
    seed: int
    gain: bool = False  # whether policies on the learned models are played


class Outcome(NamedTuple):
    """A fit compared with the truth; without a moving state, most entries are NaN."""

    chosen: str
    n_states: int
    stay_error: float = np.nan  # largest relative error of a state's mean stay
    average_error: float = np.nan  # relative error of the mean stay, averaged over states
    move_error: float = np.nan  # largest error of an entry off the diagonal
    gain: float = np.nan  # of the learned moving model over the still one, per round
    true_gain: float = np.nan  # the same of the true model


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


def learn_moves(job: Job) -> Outcome:
    """Learn from a log whose users' states last 30 rounds, and compare with the truth."""
    rng = np.random.default_rng([job.seed, 1])
    still = GaussianArms(rng.random((N_STATES, N_ACTIONS)), job.noise)
    truth = Markov.switching(still, 1 / STAY)
    log = generate(truth, job.n_users, ROUNDS, rng)
    result = fit(log, kind="arms", bootstrap=0, assess=False, seed=job.seed)
    chosen, model = result.report["dynamics"]["chosen"], result.model
    if chosen == "none" or model.n_states != N_STATES:
        return Outcome(chosen, model.n_states)
    order = align(model.expected_rewards(None)[0], still.means)
    rows: FloatArray = model.transition[np.ix_(order, order)]
    stays, off = mean_stay(rows), ~np.eye(N_STATES, dtype=bool)
    errors = (
        float(np.abs(stays / STAY - 1).max()),
        float(abs(stays.mean() / STAY - 1)),
        float(np.abs(rows - truth.transition)[off].max()),
    )
    gains = (np.nan, np.nan)
    if job.gain:
        fixed = fit(log, kind="arms", bootstrap=0, assess=False, seed=job.seed, dynamics="none")
        players = {"still": mTS(fixed.model), "learned": mTS(model), "true": mTS(truth)}
        played = simulate(players, UsersOfModel(truth), n_runs=PLAYERS, horizon=HORIZON)
        lead = {name: played.difference(name, "still", "reward").mean for name in players}
        gains = (lead["learned"], lead["true"])
    return Outcome(chosen, model.n_states, *errors, *gains)


def learn_still(job: Job) -> Outcome:
    """Learn from a log of users whose states stand still."""
    rng = np.random.default_rng([job.seed, 2])
    still = GaussianArms(rng.random((N_STATES, N_ACTIONS)), job.noise)
    log = generate(still, job.n_users, ROUNDS, rng)
    result = fit(log, kind="arms", bootstrap=0, assess=False, seed=job.seed)
    return Outcome(result.report["dynamics"]["chosen"], result.model.n_states)


class DynamicsExperiment(Experiment):
    """Recover how states move from generated logs, and leave states alone that stand still."""

    name = "dynamics"
    help = "how a latent state moves, learned from logs: recovery, false alarms, and gain"
    options = (
        Option("moving", "logs of each noise whose states move", 3, positive),
        Option("still", "logs whose states stand still", 20, positive),
        Option("users", "users of a log whose states move", USERS, positive),
    )

    def measure(self, work: Work) -> Report:
        options = work.options
        first = options.seed
        moving = [
            Job(noise, options.users, first + i, gain=i == 0)
            for noise in NOISE.values()
            for i in range(options.moving)
        ]
        levels = list(NOISE.values())
        still = [Job(levels[i % 2], STILL_USERS, first + i) for i in range(options.still)]
        moved = work.map("dynamics, states that move", learn_moves, moving)
        stood = work.map("dynamics, states that stand still", learn_still, still)
        left_alone = sum(one.chosen == "none" for one in stood)
        rows: list[tuple[str, ...]] = []
        claims: list[Claim] = []
        for name, noise in NOISE.items():
            found = [one for job, one in zip(moving, moved, strict=True) if job.noise == noise]
            average = max(one.average_error for one in found)
            moves = max(one.move_error for one in found)
            shares = [one.gain / one.true_gain for one in found if one.true_gain == one.true_gain]
            kept = sum(one.chosen == "markov" and one.n_states == N_STATES for one in found)
            rows.append(
                (
                    f"{name} (noise {noise:g})",
                    f"{kept} of {len(found)}",
                    f"{average:.1%}",
                    f"{max(one.stay_error for one in found):.1%}",
                    f"{moves:.4f}",
                    ", ".join(f"{share:.0%}" for share in shares),
                )
            )
            claims += [
                Claim(f"stay {name}", "the mean stay is recovered", "within 10%",
                      f"{average:.1%}", average < 0.1),
                Claim(f"moves {name}", "moves off the diagonal are recovered", "within .004",
                      f"{moves:.4f}", moves < 0.004),
                Claim(f"gain {name}", "the gain over a still model is that of the true matrix",
                      "at least 80%", ", ".join(f"{share:.0%}" for share in shares),
                      bool(shares) and min(shares) >= 0.8),
            ]  # fmt: skip
        claims.append(
            Claim("still", "states that stand still are left alone", "on 19 of 20 logs",
                  f"{left_alone} of {len(stood)}", left_alone >= 0.95 * len(stood))
        )  # fmt: skip
        columns = ("states", "kept, with 4 states", "mean stay", "worst state's stay",
                   "worst move", "gain, of the true matrix's")  # fmt: skip
        return Report(
            settings={"users": options.users, "rounds": ROUNDS, "stay": STAY},
            claims=claims,
            tables=[Table("Errors of what is learned about how states move", columns, rows)],
        )
