"""Large catalogues: clusters of the users' vectors in the completed user x action matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from latentbandits.learning.learners import Learned, Replicate
from latentbandits.learning.linear.clusters import SMALLEST_CLUSTER, cluster_users
from latentbandits.learning.linear.completion import Completion, complete
from latentbandits.learning.linear.ridge_rows import Weighting
from latentbandits.learning.logs import Log
from latentbandits.learning.progress import Progress
from latentbandits.learning.selection import Candidate, Selection, fewest_states, judge
from latentbandits.learning.tables import LogError
from latentbandits.learning.uncertainty import Disagreement
from latentbandits.models.linear.gaussian import LinearGaussian

STATES = (1, 2, 3, 4, 5, 6, 8, 10)
"""Numbers of states that `auto` tries."""

RANKS = (1, 2, 5, 10, 20)

REGS = (0.3, 1.0, 3.0, 10.0, 30.0)
"""Regularisations that `auto` tries, in units of the rewards' standard deviation: a completion's
penalty is a nuclear norm, which has the units of a reward."""

_ATTEMPTS = 5


@dataclass(frozen=True)
class LinearLearner:
    """Clusters of the users' vectors in the completed user x action matrix (Section 5.2).

    `rank` and `reg`, where None, are chosen by held-out evidence.
    """

    reg: float | None = None
    rank: int | None = None
    weighting: Weighting = "plain"
    biases: bool = True
    sweeps: int = 20
    noise: float | None = None

    def select(
        self,
        kept: Log,
        held_out: Log,
        states: Sequence[int] | None,
        seed: int,
        progress: Progress,
    ) -> Selection:
        """Fit every rank and number of states; where the users are too few for some number of
        states, they are for any larger one.
        """
        learner = self
        if self.reg is None:
            learner = replace(self, reg=choose_reg(kept, held_out, seed, progress))
        wanted = STATES if states is None else tuple(states)
        ranks = (self.rank,) if self.rank is not None else _ranks(kept)
        progress.start("choosing states and rank", len(wanted) * len(ranks))
        rows: list[Candidate] = []
        for rank in ranks:
            prepared = learner.prepare(kept, rank, seed)
            for i, n_states in enumerate(wanted, start=1):
                rows.append(learner._try(prepared, held_out, n_states, rank, seed))
                if rows[-1].evidence is None:
                    progress.advance(len(wanted) - i + 1)
                    break
                progress.advance(1)
        if all(row.evidence is None for row in rows):
            raise LogError(rows[0].reason)
        chosen = self.choose(rows)
        learned = learner.learn(kept, chosen, seed)
        return Selection(learner, tuple(rows), chosen, learned, judge(learned, held_out))

    def choose(self, rows: Sequence[Candidate]) -> Candidate:
        return fewest_states(rows)

    def learn(self, log: Log, chosen: Candidate, seed: int) -> Learned:
        assert chosen.rank is not None
        return self.clustered(self.prepare(log, chosen.rank, seed), chosen.n_states, seed)

    def replicates(
        self,
        log: Log,
        learned: Learned,
        chosen: Candidate,
        n_fits: int,
        seed: int,
        progress: Progress,
    ) -> Iterator[Replicate]:
        for i in range(n_fits):
            again = self._learn_again(log, chosen, np.random.default_rng([seed, i]))
            progress.advance(1)
            yield Replicate(again.rewards(), again.model.state_prior, again.counts)

    def widened(self, learned: Learned, found: Disagreement) -> Learned:
        """A covariance of users within their state says nothing of the state's mean, so the
        variance of that mean is added to it.
        """
        weights = found.in_features(learned)
        moved = np.einsum("bsi,bsj->sij", weights, weights) / len(weights)
        model = learned.model
        wide = LinearGaussian(
            model.weights, model.noise, model.covariances + moved, model.state_prior
        )
        return replace(learned, model=wide)

    def settings(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "rank"}

    def prepare(self, log: Log, rank: int, seed: int) -> Completion:
        """The completed matrix: what does not depend on the number of states."""
        assert self.reg is not None
        return complete(
            log.users,
            log.actions,
            log.rewards,
            rank=rank,
            reg=self.reg,
            weighting=self.weighting,
            biases=self.biases,
            sweeps=self.sweeps,
            n_users=log.n_users,
            n_actions=log.n_actions,
            seed=seed,
        )

    def clustered(
        self, prepared: Completion, n_states: int, seed: int, smallest: int = SMALLEST_CLUSTER
    ) -> Learned:
        """The model of `n_states` clusters of the completion's users."""
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1, "openmp"):  # k-means' threads wait for each other on small data
            clusters = cluster_users(
                prepared, n_states, noise=self.noise, smallest=smallest, seed=seed
            )
        counts = prepared.action_counts
        return Learned(clusters.model, prepared.action_vectors, counts, clusters.shrinkage)

    def _try(
        self, prepared: Completion, held_out: Log, n_states: int, rank: int, seed: int
    ) -> Candidate:
        try:
            learned = self.clustered(prepared, n_states, seed)
        except ValueError as error:
            return Candidate(n_states, rank, reason=str(error))
        found = judge(learned, held_out)
        return Candidate(n_states, rank, found.evidence, found.rmse, found.by_user())

    def _learn_again(self, log: Log, chosen: Candidate, rng: np.random.Generator) -> Learned:
        """A fit to resampled users; who lack a cluster are resampled again, a few times.

        It is compared by its means, which need no covariance of many users.
        """
        attempt = 1
        assert chosen.rank is not None
        while True:
            resample = log.of_users(np.sort(rng.integers(log.n_users, size=log.n_users)))
            seed = int(rng.integers(2**31))
            try:
                prepared = self.prepare(resample, chosen.rank, seed)
                return self.clustered(prepared, chosen.n_states, seed, smallest=2)
            except ValueError:
                if attempt == _ATTEMPTS:
                    raise
                attempt += 1


def choose_reg(kept: Log, held_out: Log, seed: int, progress: Progress) -> float:
    """The regularisation under which one state of moderate rank predicts held-out users best."""
    scale = float(kept.rewards.std()) or 1.0
    rank = min(5, kept.n_users, kept.n_actions)
    progress.start("choosing the regularisation", len(REGS))
    evidence = {}
    for reg in REGS:
        learner = LinearLearner(reg=reg * scale)
        learned = learner.clustered(learner.prepare(kept, rank, seed), 1, seed)
        evidence[reg * scale] = judge(learned, held_out).evidence
        progress.advance(1)
    return max(evidence, key=evidence.__getitem__)


def _ranks(log: Log) -> tuple[int, ...]:
    return tuple(rank for rank in RANKS if rank <= min(log.n_users, log.n_actions))
