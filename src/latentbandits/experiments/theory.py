"""Theorems 1 and 2 and Corollaries 1 and 2: `latentbandits reproduce theory`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, product

import numpy as np

from latentbandits.environments import Synthetic
from latentbandits.experiments.experiment import Experiment, Work
from latentbandits.models.checks import FloatArray
from latentbandits.options import Option, positive
from latentbandits.policies import mmTS, mmUCB, mTS, mUCB
from latentbandits.policies.protocol import AnyPolicy
from latentbandits.report.report import Claim, Report, Table
from latentbandits.simulation import Estimate, simulate
from latentbandits.simulation.simulate import PolicyMaker

# The paper's regret bounds (Section 4.3).


def regret_bound(
    n_states: int, horizon: int, noise: float, epsilon: float = 0.0, delta: float = 0.0
) -> float:
    """Return n delta + 3 S + 2 n eps + 2 sigma sqrt(6 S n log n): Theorem 2 and Corollary 2.

    With epsilon = delta = 0 it is the bound of Theorem 1 and Corollary 1.

    >>> round(regret_bound(n_states=5, horizon=500, noise=0.5))
    320
    """
    root = math.sqrt(6 * n_states * horizon * math.log(horizon))
    return horizon * (delta + 2 * epsilon) + 3 * n_states + 2 * noise * root


def tightest(errors: FloatArray, horizon: int) -> tuple[float, float]:
    """Return the (epsilon, delta) that minimise n (delta + 2 eps), given models' largest errors.

    `errors` is max over (a, s) of |mu_hat - mu| for each of many models. For every error taken as
    eps, delta is the measured fraction of models with a larger error.

    >>> tightest(np.array([0.1, 0.1, 0.1, 0.9]), horizon=100)
    (0.1, 0.25)
    """
    ordered = np.sort(errors)
    exceeded = 1 - np.arange(1, len(ordered) + 1) / len(ordered)
    best = int((exceeded + 2 * ordered).argmin())
    return float(ordered[best]), float(exceeded[best])


# Measured regret compared with the bounds, on a grid of problems.

N_STATES = (2, 5, 10)
N_ACTIONS = (5, 20)
HORIZONS = (100, 500)
NOISES = (0.2, 0.5, 1.0)
MODEL_NOISE = 0.05
RUNS = 200
N_MODELS = 2000  # number of models that are drawn to measure epsilon and delta


@dataclass(frozen=True)
class Cell:
    """One problem of the grid, with a true model (`model_noise` 0) or a noisy one."""

    n_states: int
    n_actions: int
    horizon: int
    noise: float
    model_noise: float

    @property
    def environment(self) -> Synthetic:
        return Synthetic(self.model_noise, self.n_actions, self.n_states, self.noise)

    def uniform_regret(self, seed: int) -> float:
        """Return the regret of uniform play: n times the mean over problems of max_a - mean_a."""
        instances = self.environment.start(N_MODELS, self.horizon, np.random.default_rng(seed))
        lost = instances.means.max(axis=2) - instances.means.mean(axis=2)
        return self.horizon * float(lost.mean())

    def misspecification(self, seed: int) -> tuple[float, float]:
        """Return (epsilon, delta) of the noisy model, measured on fresh draws of it."""
        if self.model_noise == 0:
            return 0.0, 0.0
        instances = self.environment.start(N_MODELS, self.horizon, np.random.default_rng(seed))
        errors = np.abs(instances.model.means - instances.means).max(axis=(1, 2))
        return tightest(errors, self.horizon)


@dataclass(frozen=True)
class BoundCheck:
    """The regret of one policy in one cell, the bound of the theorem, and uniform play's regret.

    The bound says something about a policy only if uniform play would break it.
    """

    theorem: str
    policy: str
    cell: Cell
    regret: Estimate
    bound: float
    uniform: float

    @property
    def informative(self) -> bool:
        """Whether the bound is below the regret of uniform play."""
        return self.bound < self.uniform

    @property
    def share(self) -> float:
        """Regret plus two standard errors, as a share of the bound."""
        return (self.regret.mean + 2 * self.regret.stderr) / self.bound


THEOREMS: Mapping[str, tuple[str, str, float]] = {
    "mUCB": ("Theorem 1", "3S + 2 sigma sqrt(6 S n log n)", 0.0),
    "mTS": ("Corollary 1", "3S + 2 sigma sqrt(6 S n log n)", 0.0),
    "mmUCB": ("Theorem 2", "Theorem 1 + n delta + 2 n eps", MODEL_NOISE),
    "mmTS": ("Corollary 2", "Theorem 1 + n delta + 2 n eps", MODEL_NOISE),
}


def check_bounds(work: Work, runs: int = RUNS) -> list[BoundCheck]:
    """Check every theorem in every cell of the grid; no cell is longer than the horizon."""
    horizons = sorted({min(n, work.options.horizon) for n in HORIZONS})
    grid = product(N_STATES, N_ACTIONS, horizons, NOISES, (0.0, MODEL_NOISE))
    jobs = [(Cell(*values), work.options.seed, runs) for values in grid]
    return list(chain.from_iterable(work.map("regret bounds", _check_cell, jobs)))


def _check_cell(cell: Cell, seed: int, runs: int) -> list[BoundCheck]:
    epsilon, delta = cell.misspecification(seed)
    makers: Mapping[str, AnyPolicy | PolicyMaker] = {
        "mUCB": partial(mUCB, horizon=cell.horizon),
        "mTS": mTS,
        "mmUCB": partial(mmUCB, slack=epsilon, horizon=cell.horizon),
        "mmTS": mmTS,
    }
    names = [name for name, (_, _, noise) in THEOREMS.items() if noise == cell.model_noise]
    results = simulate(
        {name: makers[name] for name in names},
        cell.environment,
        n_runs=runs,
        horizon=cell.horizon,
        seed=seed,
    )
    bound = regret_bound(cell.n_states, cell.horizon, cell.noise, epsilon, delta)
    uniform = cell.uniform_regret(seed)
    return [
        BoundCheck(THEOREMS[name][0], name, cell, results[name].regret, bound, uniform)
        for name in names
    ]


def claims(checks: list[BoundCheck]) -> list[Claim]:
    """Return one claim per theorem: regret is below the bound wherever the bound is informative.

    If uniform play is below a theorem's bound in every problem, the theorem is not tested, and the
    claim says so.
    """
    return [_claim(name, [check for check in checks if check.policy == name]) for name in THEOREMS]


def _claim(policy: str, checks: list[BoundCheck]) -> Claim:
    theorem, bound, _ = THEOREMS[policy]
    informative = [check for check in checks if check.informative]
    holds = None
    if informative:
        nearest = max(informative, key=lambda check: check.share)
        cell, holds = nearest.cell, nearest.share < 1
        measured = (
            f"at most {nearest.share:.0%} of it in the {len(informative)} of {len(checks)} "
            f"problems where uniform play breaks it (S={cell.n_states}, K={cell.n_actions}, "
            f"n={cell.horizon}, sigma={cell.noise:g})"
        )
    else:
        measured = f"not informative at these sizes: uniform play keeps it in all {len(checks)}"
    return Claim(
        id=theorem.replace("Theorem ", "T").replace("Corollary ", "C"),
        claim=f"{theorem}: the regret of {policy} is bounded",
        predicted=f"regret + 2 s.e. < {bound}",
        measured=measured,
        holds=holds,
    )


# The regret bounds alone, for each problem of the grid.


class TheoryExperiment(Experiment):
    """Measured regret as a share of each bound, on a grid of S, K, n, sigma."""

    name = "theory"
    help = "the paper's regret bounds (Theorems 1, 2, Corollaries 1, 2) on a grid of problems"
    options = (
        Option("runs", "per problem", RUNS, positive),
        Option("horizon", "largest number of rounds of a problem", max(HORIZONS), positive),
    )

    def measure(self, work: Work) -> Report:
        checks = check_bounds(work, work.options.runs)
        return Report(
            policies=[_row(check) for check in checks],
            claims=claims(checks),
            tables=[_table(checks)],
        )


def _row(check: BoundCheck) -> dict[str, object]:
    cell = check.cell
    return {
        "policy": check.policy,
        "setting": f"S={cell.n_states},K={cell.n_actions},n={cell.horizon},sigma={cell.noise:g}",
        **check.regret.row("regret"),
        "bound": check.bound,
        "uniform_regret": check.uniform,
        "informative": check.informative,
    }


def _table(checks: list[BoundCheck]) -> Table:
    columns = ("theorem", "policy", "S", "K", "n", "sigma", "regret", "bound", "share", "uniform")
    rows = [
        (
            check.theorem,
            check.policy,
            *(str(v) for v in (check.cell.n_states, check.cell.n_actions, check.cell.horizon)),
            f"{check.cell.noise:g}",
            str(check.regret),
            f"{check.bound:.0f}",
            f"{check.share:.0%}",
            f"{check.uniform:.0f}" + ("" if check.informative else " (keeps it)"),
        )
        for check in checks
    ]
    return Table("Regret against its bound", columns, rows)
