"""What other families, ensembles, particles and a moving state cost beside Gaussian arms."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import ours
from benchmarks.report import Report, Table, Target
from benchmarks.timing import Comparison, race, report
from latentbandits import (
    BernoulliArms,
    CategoricalArms,
    Ensemble,
    ExponentialArms,
    GaussianArms,
    GaussianArmsUnknownNoise,
    LogisticLinear,
    Markov,
    PoissonArms,
    mmTS,
    mTS,
)

K, S, D, NOISE, SPREAD = 10, 5, 10, 0.5, 0.2
SESSIONS, ROUNDS, PARTICLE_ROUNDS, PATH_ROUNDS = 1000, 40, 50, 5
N_MEMBERS = 20

Array = np.ndarray[Any, np.dtype[np.float64]]


def main() -> Report:
    rng = np.random.default_rng(1)
    means = 0.05 + 0.9 * rng.random((S, K))
    shape = (ROUNDS, SESSIONS, K)
    gaussian = means[0] + NOISE * rng.standard_normal(shape)
    clicks = (rng.random(shape) < means[0]).astype(np.float64)
    arms: dict[str, tuple[Any, Array]] = {
        "GaussianArms": (GaussianArms(means, NOISE, SPREAD), gaussian),
        "BernoulliArms": (BernoulliArms.from_means(means, 0.1), clicks),
        "PoissonArms": (
            PoissonArms.from_means(4 * means, 0.4),
            rng.poisson(4 * means[0], shape).astype(np.float64),
        ),
        "ExponentialArms": (
            ExponentialArms.from_means(means, 0.2),
            rng.exponential(means[0], shape),
        ),
        "GaussianArmsUnknownNoise": (GaussianArmsUnknownNoise(means, NOISE, 6.0, 10.0), gaussian),
        "CategoricalArms, 3 values": (_stars(3, rng), rng.integers(1, 4, shape).astype(np.float64)),
        "CategoricalArms, 5 values": (_stars(5, rng), rng.integers(1, 6, shape).astype(np.float64)),
    }
    contestants = [
        ours.contestant(f"mmTS, {name}", mmTS(model), rewards)
        for name, (model, rewards) in arms.items()
    ]
    known = GaussianArms(means, NOISE)
    members = [
        GaussianArms(means + 0.1 * rng.standard_normal((S, K)), NOISE) for _ in range(N_MEMBERS)
    ]
    moving = Markov.switching(GaussianArms(means, NOISE, SPREAD), 0.02)
    contestants += [
        ours.contestant("mTS", mTS(known), gaussian),
        ours.contestant("mTS, Markov", mTS(Markov.switching(known, 0.02)), gaussian),
        ours.contestant(f"mmTS, Ensemble of {N_MEMBERS}", mmTS(Ensemble(members)), gaussian),
        ours.contestant("mmTS, Markov, 16 paths", mmTS(moving), gaussian[:PATH_ROUNDS]),
    ]
    comparisons = [
        *(
            Comparison(f"mmTS, {name}", "mmTS, GaussianArms", at_most=3.0)
            for name in arms
            if name != "GaussianArms"
        ),
        Comparison(f"mmTS, Ensemble of {N_MEMBERS}", "mTS", at_most=25.0),
        Comparison("mTS, Markov", "mTS", at_most=2.0),
        Comparison("mmTS, Markov, 16 paths", "mmTS, GaussianArms"),
    ]
    title = f"families: K={K}, S={S}, {SESSIONS} sessions side by side"
    result = report(title, race(contestants), comparisons)
    particles = _particles(rng)
    return Report(
        result.title,
        (*result.tables, particles[0]),
        (*result.targets, particles[1]),
        result.notes,
    )


def _stars(n_values: int, rng: np.random.Generator) -> CategoricalArms:
    concentration = 0.5 + 5 * rng.random((S, K, n_values))
    return CategoricalArms(concentration, np.arange(1.0, n_values + 1))


def _particles(rng: np.random.Generator) -> tuple[Table, Target]:
    """The first rounds of sessions with features; later rounds resample less, but look further."""
    weights = rng.standard_normal((S, D))
    policy = mmTS(LogisticLinear(weights, 0.5 * np.broadcast_to(np.eye(D), (S, D, D)), 256))
    contexts = rng.standard_normal((PARTICLE_ROUNDS, SESSIONS, K, D)) / np.sqrt(D)
    truth = weights[rng.integers(S, size=SESSIONS)]
    chances = 1 / (1 + np.exp(-np.einsum("tnkd,nd->tnk", contexts, truth)))
    clicks = (rng.random(chances.shape) < chances).astype(np.float64)
    name = "mmTS, LogisticLinear, 256 particles"
    timing = race([ours.contestant(name, policy, clicks, contexts)], repeats=2)[name]
    what = f"{name}, d={D}, first {PARTICLE_ROUNDS} rounds"
    table = Table("particles, µs per decision-and-update of a session", ("contestant", "best"),
                  ((what, timing.best),))  # fmt: skip
    return table, Target(f"{what}, per session", timing.best, at_most=200.0, unit="µs")
