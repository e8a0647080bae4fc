"""Section 5.2 of the paper: `latentbandits reproduce movielens`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from latentbandits.environments import GroupedRatings
from latentbandits.experiments import experiment as frame
from latentbandits.experiments.experiment import Alike, Order
from latentbandits.experiments.movielens_data import (
    Ratings,
    find_folder,
    given_folder,
    keep_active,
    load,
)
from latentbandits.learning.linear.clusters import Clusters, cluster_users
from latentbandits.learning.linear.completion import Completion, complete
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.protocol import with_defaults
from latentbandits.options import Option, above_zero, choose, positive
from latentbandits.policies.latent.ucb import average_item_slack
from latentbandits.policies.registry import PolicySpec
from latentbandits.report.report import Claim, Estimate, Report, Table, policy_table
from latentbandits.simulation import Results, pool
from latentbandits.simulation.simulate import WORST_SHARE, PolicyMaker, PolicyResult, makers

# The settings of the paper's MovieLens experiment, and its policies.

SETTING = "movielens-1m"
RATING_RANGE = (1.0, 5.0)
NOISE = 0.5
ACTIONS = 20


@dataclass(frozen=True)
class MovieLensSettings:
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
    covariances = with_defaults(environment.model).covariances
    assert covariances is not None  # the model is linear
    return average_item_slack(shown, covariances)


# Claims of the paper about its MovieLens experiment (Section 5.2), and further ones.

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

    def check(self, results: frame.BySetting) -> Claim:
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


CLAIMS: tuple[frame.Checkable, ...] = (
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


def _option(name: str, words: str, kind: Callable[[str], Any] = positive) -> Option:
    """Return an option for one of the settings."""
    return Option(name, words, getattr(MovieLensSettings(), name.replace("-", "_")), kind)


DATA = Option(
    "data",
    "a MovieLens 1M folder (default: $LATENTBANDITS_DATA, else a cached copy, else downloaded from "
    "grouplens.org)",
    metavar="DIR",
    recorded=False,
)


class MovieLensExperiment(frame.Experiment):
    """The paper's Figure 2 and the claims about it."""

    name = "movielens"
    help = "the paper's MovieLens 1M experiment (Section 5.2, Figure 2)"
    options = (
        DATA,
        _option("users", "users to play, drawn uniformly, in each split; the paper: 100"),
        _option("rank", "rank of the completed matrices"),
        _option("states", "latent states: clusters of users"),
        _option("reg", "regularisation of the completion", above_zero),
        _option("horizon", "rounds per user"),
        _option("splits", "random 50/50 splits of the ratings; errors are over them too"),
        _option("more-than", "keep users and movies with more ratings than this"),
        Option("reg-sweep", "also for these: a table of which claims hold for which regularisation",
               [], above_zero, several=True, metavar="REG"),
        Option("policies", "only these; by default all of them", several=True, metavar="POLICY"),
    )  # fmt: skip

    def check(self, arguments: argparse.Namespace) -> None:
        choose("policy", arguments.policies, POLICIES)
        given_folder(arguments.data)

    def measure(self, work: frame.Work) -> Report:
        from latentbandits.simulation.plots import draw_results

        options = work.options
        settings = MovieLensSettings(
            **{name: getattr(options, name) for name in asdict(MovieLensSettings())}
        )
        chosen = choose("policy", options.policies, POLICIES)
        data = load(find_folder(options.data, work.progress))
        kept = keep_active(data, settings.more_than)
        sweep = {
            reg: _play(work, kept, chosen, replace(settings, reg=reg))
            for reg in dict.fromkeys([settings.reg, *options.reg_sweep])
        }
        outcome = sweep[settings.reg]
        results = {
            SETTING if reg == settings.reg else f"{SETTING}, reg={reg:g}": one.results
            for reg, one in sweep.items()
        }
        title = f"MovieLens 1M, {kept}: {_amount(settings)}"
        rows = frame.policy_rows({SETTING: outcome.results})
        tables = [_learning_table(outcome), policy_table(title, rows)]
        if len(sweep) > 1:
            tables.append(_sweep_table(sweep))
        figure = draw_results(
            outcome.results, f"{title}, one standard error", "mean rating", NOT_DRAWN
        )
        return Report(
            settings={
                "policies": chosen,
                "filtered_ratings": len(kept.ratings),
                "filtered_users": len(kept.user_ids),
                "filtered_movies": len(kept.movie_ids),
                "learned": outcome.learned,
            },
            policies=frame.policy_rows(results),
            claims=outcome.claims,
            tables=tables,
            figures={"movielens": figure},
            frames={"curves": outcome.results.curves()},
        )


class _Outcome(NamedTuple):
    """The results of one setting."""

    results: Results
    claims: list[Claim]
    learned: list[dict[str, Any]]  # one per split


def _play(
    work: frame.Work, data: Ratings, names: Sequence[str], settings: MovieLensSettings
) -> _Outcome:
    learned, parts = [], []
    for number in range(settings.splits):
        split = learn(data, settings, number)
        chosen = policies(names, split.environment, settings.horizon)
        what = f"reg={settings.reg:g}, split {number + 1} of {settings.splits}"
        setting = frame.Setting(what, split.environment, chosen)
        seed = settings.seed + number
        parts.append(work.play("movielens", setting, n_runs=settings.users, seed=seed))
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
    return _Outcome(results, frame.check_all(CLAIMS, {SETTING: results}), learned)


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


def _amount(settings: MovieLensSettings) -> str:
    splits = "" if settings.splits == 1 else f" in each of {settings.splits} splits"
    return f"{settings.users} users played{splits}"


# The split of ratings into a half to learn from and a half that serves as truth (Section 5.2).


@dataclass(frozen=True, eq=False)
class Split:
    """One random split, completed; the policies are given facts of `train` only."""

    train: Completion
    test: Completion
    clusters: Clusters
    environment: GroupedRatings


def halves(n_ratings: int, seed: int, number: int) -> tuple[IntArray, IntArray]:
    """Return two random halves of the ratings' positions, train first."""
    order = np.random.default_rng([seed, number]).permutation(n_ratings)
    return order[: n_ratings // 2], order[n_ratings // 2 :]


def learn(data: Ratings, settings: MovieLensSettings, number: int) -> Split:
    """Complete both halves of split `number`, cluster the train users, and set up the rounds."""
    train, test = (
        complete(
            data.users[half],
            data.movies[half],
            data.ratings[half],
            rank=settings.rank,
            reg=settings.reg,
            n_users=len(data.user_ids),
            n_actions=len(data.movie_ids),
            seed=settings.seed + number,
        )
        for half in halves(len(data.ratings), settings.seed, number)
    )
    clusters = cluster_users(train, settings.states, noise=NOISE, seed=settings.seed + number)
    # A movie without ratings in one half has no vector there, and cannot be shown.
    shown = (train.action_counts > 0) & (test.action_counts > 0)
    genres = data.genres & shown[:, None]
    environment = GroupedRatings(
        clusters.model,
        train.action_vectors,
        genres[:, genres.any(axis=0)],
        test.user_vectors[test.user_counts > 0],
        test.action_vectors,
        ACTIONS,
        NOISE,
    )
    return Split(train, test, clusters, environment)


def first_split(folder: str | None, seed: int) -> GroupedRatings:
    """Return the paper's problem on one split of the ratings in a MovieLens 1M folder."""
    settings = MovieLensSettings(seed=seed)
    ratings = keep_active(load(find_folder(folder)), settings.more_than)
    return learn(ratings, settings, 0).environment
