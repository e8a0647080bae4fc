"""Split, learn and play; repeat with the regularisations of --reg-sweep."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from typing import Any

from latentbandits.experiments.claims import check_all
from latentbandits.experiments.movielens.claims import CLAIMS
from latentbandits.experiments.movielens.data import Ratings, find_folder, given_folder, load
from latentbandits.experiments.movielens.settings import POLICIES, SETTING, Settings, policies
from latentbandits.options import above_zero, choose, positive
from latentbandits.report.progress import Progress
from latentbandits.report.report import Claim, Report, Table
from latentbandits.simulation import Results, pool, simulate

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
        from latentbandits.experiments.movielens.filtering import keep_active
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
        from latentbandits.experiments.movielens.settings import session_slack
        from latentbandits.experiments.movielens.split import learn

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
