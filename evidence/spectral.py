"""The error of a learned mixture by amount of data: moments, EM, and an oracle with labels."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars

from latentbandits.experiments.experiment import Experiment, Figures, Work
from latentbandits.learning.generate import KnownArms, generate_arms
from latentbandits.learning.learners import align
from latentbandits.learning.mixture import decompose, fit_mixture, fit_spectral, moments
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.options import Option, positive
from latentbandits.report import drawing
from latentbandits.report.report import Claim, Estimate, Report, Table

# One generated log, from which four methods learn.

METHODS = ("moments", "spectral", "em", "labels known")


Rows = Sequence[Mapping[str, Any]]
"""Root mean square errors, `means` and `shares`, by `users`, `seed` and `method`."""


def measure(n_users: int, seed: int) -> Rows:
    """Return a row for each of METHODS."""
    truth = generate_arms(n_users=n_users, seed=seed)
    n_states = len(truth.shares)
    raw = decompose(moments(truth.log), n_states, seed=seed)
    spectral = fit_spectral(truth.log, n_states, seed=seed)
    em = fit_mixture(truth.log, n_states, seed=seed)
    learned = (
        (raw.means, raw.shares),
        (spectral.fitted.means, spectral.model.state_prior),
        (em.fitted.means, em.model.state_prior),
        (truth.labelled_means(), np.bincount(truth.state, minlength=n_states) / n_users),
    )
    return [
        {"users": n_users, "seed": seed, "method": method, **_errors(*one, truth)}
        for method, one in zip(METHODS, learned, strict=True)
    ]


def errors_of(rows: Rows, what: str, method: str) -> FloatArray:
    """Return the errors of a method, one for each log."""
    return np.array([row[what] for row in rows if row["method"] == method])


def slope(n_users: FloatArray, errors: FloatArray, truth: IntArray) -> Estimate:
    """Return the power of n with which errors fall, by least squares on their logarithms.

    Each `truth` has its own intercept, because some truths are harder than others.

    >>> users, truth = np.array([1.0, 4.0, 1.0, 4.0]), np.array([0, 0, 1, 1])
    >>> print(f"{slope(users, np.array([2.0, 1.0, 8.0, 4.0]), truth).mean:.3f}")
    -0.500
    """
    x, y = _within(np.log(n_users), truth), _within(np.log(errors), truth)
    power = float(x @ y / (x @ x))
    residual = y - power * x
    freedom = max(len(x) - len(np.unique(truth)) - 1, 1)
    return Estimate(power, math.sqrt(float(residual @ residual) / freedom / float(x @ x)))


def _within(values: FloatArray, group: IntArray) -> FloatArray:
    """Return the values minus the mean of their group."""
    _, index = np.unique(group, return_inverse=True)
    centred: FloatArray = values - (np.bincount(index, values) / np.bincount(index))[index]
    return centred


def _errors(means: FloatArray, shares: FloatArray, truth: KnownArms) -> dict[str, float]:
    order = align(means, truth.means)
    return {
        "means": float(np.sqrt(np.mean((means[order] - truth.means) ** 2))),
        "shares": float(np.sqrt(np.mean((shares[order] - truth.shares) ** 2))),
    }


# Test on logs of growing size the n^-1/2 rate of the moments, and their agreement with EM.

SIZES = (2_500, 5_000, 10_000, 20_000)
LOGS = 10
TOLERANCE = 0.1
"""The largest accepted difference of the fitted power from -1/2."""


_COLOURS = dict(
    zip(METHODS, (drawing.ORANGE, drawing.GREEN, drawing.BLUE, drawing.GREY), strict=True)
)
_STYLES = {"spectral": "o", "em": "-"}  # EM ends at the same point as EM from the moments
_TICKS = (0.005, 0.01, 0.02, 0.05)
_TITLES = {"means": "mean reward of an action in a state", "shares": "share of users in a state"}
_LABELS = dict(
    zip(METHODS, ("moments", "EM, moments", "EM, restarts", "states known"), strict=True)
)


class SpectralExperiment(Experiment):
    """Test that epsilon and delta shrink with the amount of offline data (Section 4.2)."""

    name = "spectral"
    help = "learning the model by moments and by EM: how errors fall with the data"
    options = (
        Option("logs", "of each size", LOGS, positive),
        Option("sizes", "users of a log", list(SIZES), positive, several=True, metavar="USERS"),
    )

    def check(self, arguments: argparse.Namespace) -> None:
        if len(set(arguments.sizes)) < 2:
            raise ValueError("give at least two different --sizes to fit a slope")

    def measure(self, work: Work) -> Report:
        jobs = [
            (size, work.options.seed + i)
            for size in sorted(set(work.options.sizes))
            for i in range(work.options.logs)
        ]
        errors = [row for rows in work.map(self.name, measure, jobs) for row in rows]
        rows = _averages(errors)
        return Report(
            settings={"errors": rows},
            claims=_claims(errors),
            tables=[_table(rows)],
            frames={"errors": polars.DataFrame(errors)},
        )

    def draw(self, results: Mapping[str, Any]) -> Figures:
        """Draw two panels with a line for each method and one of slope -1/2."""
        rows = results["settings"]["errors"]
        title = "Learning by moments, by EM, and with every user's state known"
        figure = drawing.new_figure(7, title, drawing.NARROW)
        for axes, what in zip(figure.subplots(2, 1), ("means", "shares"), strict=True):
            for method, colour in _COLOURS.items():
                of_method = [row for row in rows if row["method"] == method]
                x, y = [row["users"] for row in of_method], [row[what] for row in of_method]
                axes.plot(x, y, _STYLES.get(method, "o-"), color=colour, ms=5, lw=1.4,
                          label=_LABELS[method])  # fmt: skip
                error = [row[f"{what}_stderr"] for row in of_method]
                axes.errorbar(x, y, error, fmt="none", ecolor=colour)
            sizes = np.array(sorted({row["users"] for row in rows}), dtype=float)
            start = float(next(row[what] for row in rows if row["method"] == "moments"))
            axes.plot(sizes, start * np.sqrt(sizes[0] / sizes), ":", color=drawing.DARK, lw=1.2,
                      label=r"slope $-1/2$")  # fmt: skip
            axes.set_xscale("log")
            axes.set_yscale("log")
            drawing.plain(axes, x="users in the log", y="root mean square error",
                          title=_TITLES[what])  # fmt: skip
            axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
            axes.set_yticks([tick for tick in _TICKS if axes.get_ylim()[0] <= tick])
            axes.yaxis.set_major_formatter("{x:g}")
            axes.minorticks_off()
            axes.margins(y=0.06)
            axes.set_xlim(0.97 * sizes[0], 1.03 * sizes[-1])
            drawing.label_lines(axes)
        return {"spectral": figure}


def _claims(rows: Rows) -> list[Claim]:
    sizes = errors_of(rows, "users", "moments").astype(np.float64)
    seeds = errors_of(rows, "seed", "moments").astype(np.int64)
    claims = []
    for what in ("means", "shares"):
        power = slope(sizes, errors_of(rows, what, "moments"), seeds)
        claim = f"the error of the moments' {what} falls with the data as about n^-1/2"
        predicted = f"power -0.5 to within {TOLERANCE:g}"
        claims.append(
            Claim(f"spectral-{what}", claim, predicted, f"power {power}", _near(power, -0.5))
        )
    spectral, em, labels = (errors_of(rows, "means", method) for method in METHODS[1:])
    ratios, allowed = spectral / em, em / labels
    return [
        *claims,
        Claim("spectral-em", "EM started at the moments ends at the same point as EM with restarts",
              "the same error of the means to within 1% in every log",
              f"ratio of errors {ratios.min():.3f} to {ratios.max():.3f}",
              bool(np.abs(ratios - 1).max() < 0.01)),
        Claim("em-allowed", "the error of EM is close to that of an oracle with the true labels",
              "an error of the means below 1.5 times the oracle's in every log",
              f"{Estimate.from_values(allowed)} times on average, {allowed.max():.2f} at most",
              bool(allowed.max() < 1.5)),
    ]  # fmt: skip


def _near(power: Estimate, expected: float) -> bool | None:
    """Return whether the power is within the tolerance; None if its error leaves this open."""
    distance = abs(power.mean - expected)
    if distance <= TOLERANCE:
        return True
    return None if distance - 2 * power.stderr <= TOLERANCE else False


def _averages(errors: Rows) -> list[dict[str, Any]]:
    """Return the mean errors of each method by size, with their standard errors."""
    rows = []
    for size in dict.fromkeys(row["users"] for row in errors):
        of_size = [row for row in errors if row["users"] == size]
        for method in METHODS:
            means, shares = (
                Estimate.from_values(errors_of(of_size, what, method))
                for what in ("means", "shares")
            )
            both = means.row("means") | shares.row("shares")
            rows.append({"users": size, "method": method, **both})
    return rows


def _table(rows: Rows) -> Table:
    body = []
    for size in dict.fromkeys(row["users"] for row in rows):
        of_size = [row for row in rows if row["users"] == size]
        cells = [f"{row['means']:.4f} ±{row['means_stderr']:.4f}" for row in of_size]
        body.append(
            (f"{size:,}", *cells, f"{of_size[0]['shares']:.4f}", f"{of_size[2]['shares']:.4f}")
        )
    columns = ("users", *(f"means: {method}" for method in METHODS), "shares: moments", "em")
    return Table("Root mean square errors, 5 states, 10 actions, 30 rounds", columns, body)
