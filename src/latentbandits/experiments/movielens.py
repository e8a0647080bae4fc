"""Section 5.2 of the paper: `latentbandits reproduce movielens`."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from latentbandits.environments import GroupedRatings
from latentbandits.experiments.experiment import Alike, BySetting, Checkable, Order, check_all
from latentbandits.experiments.movielens_data import Ratings, find_folder, given_folder, load
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.options import above_zero, choose, positive
from latentbandits.policies.derived import average_item_slack
from latentbandits.policies.registry import PolicySpec
from latentbandits.report.report import Claim, Estimate, Progress, Report, Table
from latentbandits.simulation import Results, pool, simulate
from latentbandits.simulation.results import PolicyResult
from latentbandits.simulation.simulate import PolicyMaker, makers

__all__ = ["MovieLensExperiment"]


# The settings of the paper's MovieLens experiment, and its policies.

SETTING = "movielens-1m"
RATING_RANGE = (1.0, 5.0)
NOISE = 0.5
ACTIONS = 20


@dataclass(frozen=True)
class Settings:
    """The settings of a run: the paper's, except `users` and settings that it does not state."""

    users: int = 1000  # 100 in the paper
    horizon: int = 500
    rank: int = 20
    states: int = 5
    reg: float = 1.0  # not stated in the paper
    splits: int = 1
    more_than: int = 200
    seed: int = 0


POLICIES = (
    "LinUCB", "LinTS", "EXP4", "mUCB", "mmUCB", "mTS", "mmTS", "mIDS", "mmIDS", "mmGreedy",
)  # fmt: skip
"""Every policy of the paper's figure, and ours beyond it.

LinUCB and LinTS use the same train vectors, with only the prior N(0, I).
"""


def policies(
    names: Sequence[str], environment: GroupedRatings, horizon: int
) -> dict[str, PolicyMaker]:
    """Return the policies of these names in one split of the data."""
    facts = {"horizon": horizon, "reward_range": RATING_RANGE, "noise": environment.noise}
    texts = {name: PolicySpec(name) for name in names}
    if "mmUCB" in texts:
        texts["mmUCB"] = PolicySpec("mmUCB", {"slack": session_slack(environment)})
    return makers(texts, **facts)


def session_slack(environment: GroupedRatings) -> float:
    """Return the slack of mmUCB for the average item of a round (see `average_item_slack`)."""
    shares = environment.groups / environment.sizes  # each group's share of items
    shown = shares.mean(axis=1) @ environment.features
    return average_item_slack(shown, environment.model.covariances)


# Claims of the paper about its MovieLens experiment (Section 5.2), and further ones.

WORST_SHARE = 0.1
_RESAMPLES = 500


@dataclass(frozen=True)
class EndsFarAbove:
    """A claim that `policy` ends above `other` by `lead` for the bottom 10% of users.

    The bottom 10% of a policy are the users who earned least with it over the horizon, as in the
    figure. Their final reward is the mean over the last 100 rounds. The error of the difference is
    by bootstrap over users.
    """

    id: str
    claim: str
    policy: str
    other: str
    lead: float

    @property
    def policies(self) -> tuple[str, ...]:
        return self.policy, self.other

    def check(self, results: BySetting) -> Claim:
        mine, others = results[SETTING][self.policy], results[SETTING][self.other]
        rng = np.random.default_rng(0)
        n = len(mine.rewards)
        draws = [
            _end_of_worst(mine, sample) - _end_of_worst(others, sample)
            for sample in rng.integers(n, size=(_RESAMPLES, n))
        ]
        everyone = np.arange(n)
        mean = _end_of_worst(mine, everyone) - _end_of_worst(others, everyone)
        difference = Estimate(mean, float(np.std(draws, ddof=1)))
        predicted = (
            f"last 100 rounds of the bottom 10% of users, {self.policy} - {self.other} "
            f"> {self.lead:g}"
        )
        margin = 2 * difference.stderr
        holds = True if mean - margin > self.lead else False if mean + margin < self.lead else None
        return Claim(self.id, self.claim, predicted, f"{difference}", holds)


def _end_of_worst(result: PolicyResult, runs: IntArray) -> float:
    rewards: FloatArray = result.rewards[runs]
    worst = np.argsort(rewards, kind="stable")[: math.ceil(WORST_SHARE * len(rewards))]
    return float(result.last_rewards[runs][worst].mean())


CLAIMS: tuple[Checkable, ...] = (
    Order("M1", "mUCB and mTS personalise more quickly than LinUCB and LinTS",
          SETTING, "first_rounds_reward", ("mUCB", "mTS"), ("LinUCB", "LinTS")),
    Order("M2", "mUCB and mTS converge to better policies than EXP4",
          SETTING, "last_rounds_reward", ("mUCB", "mTS"), ("EXP4",)),
    Order("M3", "mmTS handles model uncertainty: it ends above mUCB and mTS",
          SETTING, "last_rounds_reward", ("mmTS",), ("mUCB", "mTS")),
    Order("M4", "mmTS converges to the best reward of the paper's six",
          SETTING, "last_rounds_reward", ("mmTS",), ("LinUCB", "LinTS", "EXP4", "mUCB", "mTS")),
    # The worst and the best policy differ by only 0.3 stars for the average user.
    EndsFarAbove("M5", "mmTS dramatically outperforms mTS in the worst case",
                 "mmTS", "mTS", lead=0.2),
    # As in the synthetic experiment, 0.02 of the range of rewards, here 1 to 5.
    Alike("M6", "mmUCB is similar to mUCB", "mmUCB", "mUCB", tolerance=0.08),
    Order("B1", "beyond the paper: mmIDS earns at least as much as mmTS over the horizon",
          SETTING, "reward", ("mmIDS",), ("mmTS",)),
    Order("B2", "beyond the paper: mmIDS personalises more quickly than mmTS",
          SETTING, "first_rounds_reward", ("mmIDS",), ("mmTS",)),
)  # fmt: skip


# Split, learn and play; repeat with the regularisations of --reg-sweep.

NOT_DRAWN = ("LinUCB", "EXP4", "mUCB", "mmUCB", "mIDS")
"""Policies in the tables only, to reduce clutter, as the paper does with mmUCB."""


class MovieLensExperiment:
    """The paper's Figure 2 and the claims about it."""

    name = "movielens"
    help = "the paper's MovieLens 1M experiment (Section 5.2, Figure 2)"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        defaults = Settings()

        def option(name: str, kind: Callable[[str], Any], help_text: str) -> None:
            default = getattr(defaults, name.replace("-", "_"))
            parser.add_argument(
                f"--{name}", type=kind, default=default, help=f"{help_text} (default {default:g})"
            )

        parser.add_argument(
            "--data",
            metavar="DIR",
            help="a MovieLens 1M folder (default: $LATENTBANDITS_DATA, else a cached copy, else "
            "downloaded from grouplens.org)",
        )
        option("users", positive, "users to play, drawn uniformly, in each split; the paper: 100")
        option("rank", positive, "rank of the completed matrices")
        option("states", positive, "latent states: clusters of users")
        option("reg", above_zero, "regularisation of the completion")
        option("horizon", positive, "rounds per user")
        option("splits", positive, "random 50/50 splits of the ratings; errors are over them too")
        option("more-than", positive, "keep users and movies with more ratings than this")
        parser.add_argument(
            "--reg-sweep",
            type=above_zero,
            nargs="+",
            metavar="REG",
            default=[],
            help="also for these: a table of which claims hold for which regularisation",
        )
        parser.add_argument(
            "--policies", nargs="+", metavar="POLICY", help="only these (default: all of them)"
        )

    def check(self, arguments: argparse.Namespace) -> None:
        _chosen(arguments)
        given_folder(arguments.data)

    def run(
        self, arguments: argparse.Namespace, executor: Executor | None, progress: Progress
    ) -> Report:
        from latentbandits.experiments.movielens_data import keep_active
        from latentbandits.report.terminal import policy_table
        from latentbandits.simulation.plots import draw_results

        settings = Settings(**{name: getattr(arguments, name) for name in asdict(Settings())})
        chosen = _chosen(arguments)
        data = load(find_folder(arguments.data, _bytes_shown_by(progress)))
        started = time.perf_counter()
        kept = keep_active(data, settings.more_than)
        player = _Player(kept, chosen, executor, progress)
        outcome = player.play(settings)
        sweep = {settings.reg: outcome}
        for reg in arguments.reg_sweep:
            if reg not in sweep:
                sweep[reg] = player.play(replace(settings, reg=reg))
        rows = [
            row | {"setting": SETTING if reg == settings.reg else f"{SETTING}, reg={reg:g}"}
            for reg, claims_of in sweep.items()
            for row in claims_of.rows
        ]
        title = f"MovieLens 1M, {kept}: {_amount(settings)}"
        tables = [_learning_table(outcome), policy_table(title, outcome.rows)]
        if len(sweep) > 1:
            tables.append(_sweep_table(sweep))
        return Report(
            experiment=self.name,
            settings=asdict(settings)
            | {
                "policies": chosen,
                "reg_sweep": list(arguments.reg_sweep),
                "filtered_ratings": len(kept.ratings),
                "filtered_users": len(kept.user_ids),
                "filtered_movies": len(kept.movie_ids),
                "learned": outcome.learned,
            },
            seconds=time.perf_counter() - started,
            policies=rows,
            claims=outcome.claims,
            tables=tables,
            figures={
                "movielens": draw_results(
                    outcome.results, f"{title}, one standard error", "mean rating", NOT_DRAWN
                )
            },
            frames={"curves": outcome.results.curves()},
        )


def _chosen(arguments: argparse.Namespace) -> list[str]:
    return choose("policy", arguments.policies, POLICIES)


@dataclass(frozen=True, eq=False)
class _Outcome:
    """The results of one setting."""

    results: Results
    rows: list[dict[str, Any]]
    claims: list[Claim]
    learned: list[dict[str, Any]]  # one per split


@dataclass(frozen=True, eq=False)
class _Player:
    """A player of the same data with any settings."""

    data: Ratings
    policies: Sequence[str]
    executor: Executor | None
    progress: Progress

    def play(self, settings: Settings) -> _Outcome:
        from latentbandits.experiments.movielens_split import learn

        learned, parts = [], []
        for number in range(settings.splits):
            what = f"movielens, reg={settings.reg:g}, split {number + 1} of {settings.splits}"
            self.progress.start(what, settings.users)
            split = learn(self.data, settings, number)
            parts.append(
                simulate(
                    policies(self.policies, split.environment, settings.horizon),
                    split.environment,
                    n_runs=settings.users,
                    horizon=settings.horizon,
                    seed=settings.seed + number,
                    executor=self.executor,
                    progress=self.progress.advance,
                )
            )
            learned.append(
                {
                    "train_rmse": split.train.history[-1].rmse,
                    "test_rmse": split.test.history[-1].rmse,
                    "residual_noise": split.train.noise,
                    "cluster_sizes": split.clusters.sizes.tolist(),
                    "shrinkage": split.clusters.shrinkage.tolist(),
                    "mmUCB_slack": session_slack(split.environment),
                }
            )
        results = pool(parts)
        rows = [policy.row() | {"setting": SETTING} for policy in results.values()]
        return _Outcome(results, rows, check_all(CLAIMS, {SETTING: results}), learned)


def _learning_table(outcome: _Outcome) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            str(number),
            f"{learned['train_rmse']:.3f}",
            f"{learned['test_rmse']:.3f}",
            f"{learned['residual_noise']:.3f}",
            ", ".join(str(size) for size in learned["cluster_sizes"]),
            f"{max(learned['shrinkage']):.2g}",
            f"{learned['mmUCB_slack']:.3f}",
        )
        for number, learned in enumerate(outcome.learned, start=1)
    ]
    columns = ("split", "train RMSE", "test RMSE", "noise", "users in each state",
               "most shrinkage", "mmUCB slack")  # fmt: skip
    return Table("What was learned", columns, rows)


def _sweep_table(sweep: dict[float, _Outcome]) -> Table:
    """Return one row per claim and one column per regularisation.

    A cell holds the measurement and whether the claim holds.
    """
    verdicts = {True: "yes", False: "no", None: "too few"}
    ordered = sorted(sweep)
    claims = {reg: {claim.id: claim for claim in sweep[reg].claims} for reg in ordered}
    rows = [
        (
            claim.id,
            *(
                f"{verdicts[claim_at.holds]}: {_numbers(claim_at.measured)}"
                for claim_at in (claims[reg][claim.id] for reg in ordered)
            ),
        )
        for claim in sweep[ordered[0]].claims
    ]
    columns = ("claim", *(f"reg={reg:g}" for reg in ordered))
    return Table("Which claims hold for which regularisation", columns, rows)


def _numbers(measured: str) -> str:
    """Return the lead and its error, without the words around them.

    >>> _numbers("smallest lead 0.12 ±0.01 (mTS over LinTS)")
    '0.12 ±0.01'
    """
    words = measured.replace("smallest lead ", "").split()
    return " ".join(words[:2])


def _amount(settings: Settings) -> str:
    splits = "" if settings.splits == 1 else f" in each of {settings.splits} splits"
    return f"{settings.users} users played{splits}"


def _bytes_shown_by(progress: Progress) -> Callable[[str, int], Callable[[int], None]]:
    def start(description: str, total: int) -> Callable[[int], None]:
        progress.start(description, total)
        return progress.advance

    return start


# Results of an independent implementation, 100 users once, reg = 1; ours must be close.


class Expected(NamedTuple):
    """Mean true rating in rounds 1-20, in the last 100, and of the worst 10% of users."""

    first_20: float
    last_100: float
    worst_decile: float


RATING: Mapping[str, Expected] = {
    "LinUCB": Expected(3.58, 4.41, 3.65),
    "LinTS": Expected(3.67, 4.43, 3.60),
    "EXP4": Expected(4.07, 4.14, 3.24),
    "mUCB": Expected(4.15, 4.21, 3.26),
    "mTS": Expected(4.20, 4.26, 3.30),
    "mmTS": Expected(3.91, 4.43, 3.61),
}

AVERAGE: Mapping[str, float] = {"mmTS": 4.35, "mmIDS": 4.38, "mmGreedy": 4.40}
"""Mean true rating over the horizon, of mmTS and of policies beyond the paper."""

FILTERED = {"users": 1353, "movies": 1124, "ratings": 458_145}
"""The numbers of users, movies and ratings in the paper."""
