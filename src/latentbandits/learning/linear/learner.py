"""The learner for large catalogues: clusters of users' vectors in the completed matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

from latentbandits.learning.assess.heldout import HeldOut
from latentbandits.learning.backends.backend import AnyLog, LogEngine, engine_of
from latentbandits.learning.learners import (
    Candidate,
    Disagreement,
    Learned,
    Learner,
    Replicate,
    Selection,
    Split,
    States,
    clearly_better,
    fewest_states,
    judge,
    vetoed,
)
from latentbandits.learning.linear.alternating import (
    CompletionSettings,
    Folded,
    Weighting,
    complete_fold,
)
from latentbandits.learning.linear.clusters import SMALLEST_CLUSTER, cluster_fold
from latentbandits.learning.linear.variational import factorise
from latentbandits.learning.logs.tables import LogError
from latentbandits.models.linear.gaussian import LinearGaussian

STATES = (1, 2, 3, 4, 5, 6, 8, 10)
RANKS = (1, 2, 5, 10, 20)
"""Numbers of states and ranks that `auto` tries; larger ones while the evidence rises."""

MOST_STATES, MOST_RANK = 40, 80

REGS: Mapping[Weighting, tuple[float, ...]] = {
    "plain": (0.3, 1.0, 3.0, 10.0, 30.0),
    "counts": (0.01, 0.02, 0.05, 0.1, 0.2),
}
"""Regularisations that `auto` tries for each weighting of rows, in units of the rewards' standard
deviation: a completion's penalty is a nuclear norm, which has the units of a reward."""

_ATTEMPTS = 5  # extra bootstraps that may be tried to replace failed ones
# Actions differ in the log-odds of clicks by about one. The penalty of vectors would draw all
# actions together, by the same share for any number of rewards if it is weighted by counts, and
# the first choices of new users depend on popularity alone.
_CLICKS_POPULARITY_REG = 1.0
_SETTLED = 1e-5  # relative decrease of the objective below which a bootstrap's sweeps stop
_MOST_BEYOND = 5  # steps beyond the ends of REGS


@dataclass(frozen=True)
class LinearLearner(Learner):
    """A learner that clusters users' vectors in the completed user x action matrix (Section 5.2).

    If `reg` is None, vectors have posterior distributions and their priors are learned
    (`variational`); otherwise the completion is by regularised least squares. `rewards` "bernoulli"
    completes the log-odds of clicks, always by regularised least squares. `rank`, `intercepts`
    (levels of users and popularity of actions, r = c + b_a + d_u + u'v) and, for clicks, `reg` and
    the `weighting` of the penalty are chosen by held-out evidence if they are None. A `reg` without
    a `weighting` uses the "plain" weighting.
    """

    reg: float | None = None
    rank: int | None = None
    weighting: Weighting | None = None
    intercepts: bool | None = None
    sweeps: int = 20
    noise: float | None = None
    rewards: Literal["gaussian", "bernoulli"] = "gaussian"

    @property
    def variational(self) -> bool:
        """Whether vectors are uncertain, and the regularisation is learned."""
        return self.rewards == "gaussian" and self.reg is None and self.weighting is None

    def select(self, split: Split, states: States) -> Selection:
        """Choose the settings by held-out evidence, and then the number of states.

        The regularisation and intercepts are chosen at a moderate rank, then the rank, both with
        one state; the number of states comes last. If some number of states has too few users,
        larger numbers are not tried. The rank is the lowest within one paired standard error of the
        best.
        """
        kept, seed, progress = split.kept, split.seed, split.progress
        learner, prepared, warnings = self._settled(split)
        wanted = STATES if states is None else tuple(states)
        ranks = (self.rank,) if self.rank is not None else _ranks(kept)
        progress.start("choosing rank and states", len(wanted) + len(ranks))
        rows: list[Candidate] = []
        first = min(wanted)
        largest = min(MOST_RANK, kept.n_users, kept.n_actions)

        def attempt(n_states: int, rank: int) -> Candidate:
            if rank not in prepared:
                prepared[rank] = learner.prepare(kept, rank, seed)
            rows.append(learner._try(prepared[rank], split, n_states, rank))
            return rows[-1]

        for rank in ranks:
            attempt(first, rank)
            progress.advance(1)
        if all(row.evidence is None for row in rows):
            raise LogError(rows[0].reason)
        while self.rank is None and rank < largest and lowest_rank(rows) is rows[-1]:
            rank = min(2 * rank, largest)
            attempt(first, rank)
        chosen_rank = lowest_rank(rows).rank
        assert chosen_rank is not None
        for i, n_states in enumerate(n for n in wanted if n != first):
            if attempt(n_states, chosen_rank).evidence is None:
                progress.advance(len(wanted) - i)
                break
            progress.advance(1)
        of_rank = [row for row in rows if row.rank == chosen_rank]
        while (
            states is None
            and of_rank[-1].n_states < MOST_STATES
            and fewest_states(of_rank) is of_rank[-1]
        ):
            more = min(round(1.3 * of_rank[-1].n_states), MOST_STATES)
            of_rank.append(attempt(more, chosen_rank))
        rows.sort(key=lambda row: (row.rank or 0, row.n_states))
        chosen = self.choose(rows)
        judged = judge(chosen.fit, split.held_out)
        return Selection(learner, tuple(rows), chosen, chosen.fit, judged, warnings)

    def _settled(self, split: Split) -> tuple[LinearLearner, dict[int, Folded], tuple[str, ...]]:
        """Choose the regularisation and intercepts by the evidence of one state of moderate rank.

        The grid of regularisations is extended while the evidence rises at its end. Return the
        learner, its completion by rank if there was a choice, and a warning if the evidence still
        rises.
        """
        kept, progress = split.kept, split.progress
        scale = (kept.summary.rewards.deviation or 1.0) if self.rewards == "gaussian" else 1.0
        rank = self.rank or min(5, kept.n_users, kept.n_actions)
        weightings: tuple[Weighting, ...] = ("counts", "plain")
        if self.weighting is not None or self.reg is not None:
            weightings = (self.weighting or "plain",)
        grid: list[tuple[Weighting | None, float | None]] = [
            (weighting, reg)
            for weighting in weightings
            for reg in (
                [one * scale for one in REGS[weighting]] if self.reg is None else [self.reg]
            )
        ]
        if self.variational:
            grid = [(None, None)]
        kinds = (True, False) if self.intercepts is None else (self.intercepts,)
        learners = [
            replace(self, weighting=weighting, reg=reg, intercepts=kinds[0])
            for weighting, reg in grid
        ]
        if len(learners) * len(kinds) == 1:
            return learners[0], {}, ()
        progress.start("choosing regularisation and intercepts", len(grid) + len(kinds) - 1)

        def judged(learner: LinearLearner) -> _Judged:
            prepared = learner.prepare(kept, rank, split.seed)
            learned = learner.clustered(prepared, 1, split.seed)
            progress.advance(1)
            return _Judged(learner, prepared, judge(learned, split.held_out))

        chosen = _preferred([judged(learner) for learner in learners])
        if len(kinds) > 1:
            other = judged(replace(chosen.learner, intercepts=kinds[1]))
            if clearly_better(other.scores, chosen.scores):
                chosen = other
        warnings: tuple[str, ...] = ()
        for _ in range(_MOST_BEYOND):
            further = _beyond(chosen.learner, grid)
            if further is None:
                break
            grid.append((further.weighting, further.reg))
            other = judged(further)
            if other.scores.evidence <= chosen.scores.evidence:
                break
            chosen = other
        else:
            warnings = (
                f"the chosen regularisation, {chosen.learner.reg:.3g}, is at the end of the range "
                "that was tried: a better value may lie beyond it (--reg)",
            )
        return chosen.learner, {rank: chosen.prepared}, warnings

    def choose(self, rows: Sequence[Candidate]) -> Candidate:
        """Return the lowest rank, then the fewest states, within one standard error of the best."""
        fitted = [row for row in rows if row.evidence is not None]
        fewest = min(row.n_states for row in fitted)
        rank = lowest_rank([row for row in fitted if row.n_states == fewest]).rank
        return fewest_states([row for row in fitted if row.rank == rank])

    def learn(self, log: AnyLog, chosen: Candidate, seed: int) -> Learned:
        assert chosen.rank is not None
        log = engine_of(log)
        return self.clustered(self.prepare(log, chosen.rank, seed), chosen.n_states, seed)

    def replicates(
        self, log: AnyLog, learned: Learned, n_fits: int, seed: int
    ) -> Iterator[Replicate]:
        """Refit to Poisson bootstraps of the users, each from the last start of the full fit.

        Replicates are compared by their means, which need no covariance of many users. A replicate
        that lacks a cluster is left out, and the next one is taken.
        """
        log = engine_of(log)
        assert isinstance(learned.fitted, Folded)
        fitted = learned.fitted
        done = 0
        for i in range(n_fits + _ATTEMPTS):
            settings = replace(fitted.settings, replicate=i)
            if fitted.uncertain is not None:
                again = factorise(log, settings, start=fitted.uncertain)
            else:
                settings = replace(settings, tolerance=_SETTLED)
                again = complete_fold(log, settings, fitted.start)
            try:
                clustering = self.clustered(again, learned.model.n_states, seed + i, smallest=2)
            except ValueError:
                if i + 1 == n_fits + _ATTEMPTS and done == 0:
                    raise
                continue
            yield Replicate(clustering.rewards(), clustering.model.state_prior, clustering.counts)
            done += 1
            if done == n_fits:
                return

    def widened(self, learned: Learned, disagreement: Disagreement) -> Learned:
        """Add the variance of each state's mean to the covariance of users within the state.

        The covariance of users alone does not include the error of the estimated mean.
        """
        model = learned.model
        if not model.has_normal_noise:
            return learned  # differences of probabilities are not differences of weights
        covariances = model.covariances + disagreement.in_features(learned)
        wide = LinearGaussian(model.weights, model.noise, covariances, model.state_prior)
        return replace(learned, model=wide)

    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "rank"}

    def prepare(self, log: LogEngine, rank: int, seed: int) -> Folded:
        """Complete the matrix; this part does not depend on the number of states.

        A pair with n rewards has weight n.
        """
        clicks = self.rewards == "bernoulli"
        settings = CompletionSettings(
            rank=rank,
            reg=self.reg or 1.0,  # a variational factorisation has none
            weighting=self.weighting or "plain",
            biases=self.intercepts is not False,
            link="logit" if clicks else "identity",
            seed=seed,
            sweeps=self.sweeps,
            popularity_reg=_CLICKS_POPULARITY_REG if clicks else None,
        )
        if self.variational:
            return factorise(log, settings)
        assert self.reg is not None
        return complete_fold(log, settings)

    def clustered(
        self, prepared: Folded, n_states: int, seed: int, smallest: int = SMALLEST_CLUSTER
    ) -> Learned:
        """Return the model of `n_states` clusters of the completion's users."""
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1, "openmp"):  # threads of k-means slow each other down
            clusters = cluster_fold(
                prepared, n_states, noise=self.noise, smallest=smallest, seed=seed
            )
        counts = prepared.action_counts
        return Learned(clusters.model, prepared.features, counts, clusters.shrinkage, prepared)

    def _try(self, prepared: Folded, split: Split, n_states: int, rank: int) -> Candidate:
        try:
            learned = self.clustered(prepared, n_states, split.seed)
        except ValueError as error:
            return Candidate(n_states, rank, reason=str(error))
        return Candidate.scored(n_states, rank, judge(learned, split.held_out), learned)


class _Judged(NamedTuple):
    """A learner, its completion of the kept users, and the scores of the held-out users."""

    learner: LinearLearner
    prepared: Folded
    scores: HeldOut


def _preferred(tried: Sequence[_Judged]) -> _Judged:
    """Return the best result of the first weighting, unless another weighting is clearly better.

    Penalties weighted by counts (Zhou et al. 2008) come first, because users and actions with few
    rewards are shrunk less by them.
    """
    best: dict[Weighting | None, _Judged] = {}
    for one in tried:
        known = best.get(one.learner.weighting)
        if known is None or one.scores.evidence > known.scores.evidence:
            best[one.learner.weighting] = one
    chosen, *others = best.values()
    for other in others:
        if clearly_better(other.scores, chosen.scores):
            chosen = other
    return chosen


def _beyond(
    best: LinearLearner, grid: Sequence[tuple[Weighting | None, float | None]]
) -> LinearLearner | None:
    """Return the learner one step beyond the grid, if the best one is at the end of the grid."""
    tried = sorted(reg for weighting, reg in grid if weighting == best.weighting and reg)
    if len(tried) > 1 and best.reg == tried[-1]:
        return replace(best, reg=tried[-1] ** 2 / tried[-2])
    if len(tried) > 1 and best.reg == tried[0]:
        return replace(best, reg=tried[0] ** 2 / tried[1])
    return None


def lowest_rank(rows: Sequence[Candidate]) -> Candidate:
    """Return the lowest rank whose evidence is within one paired standard error of the best."""
    fitted = [row for row in rows if row.evidence is not None]
    left = [row for row in fitted if not vetoed(row, fitted, 1.0)]
    return min(left, key=lambda row: row.rank or 0)


def _ranks(log: LogEngine) -> tuple[int, ...]:
    return tuple(rank for rank in RANKS if rank <= min(log.n_users, log.n_actions))
