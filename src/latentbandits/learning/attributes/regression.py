"""Learn the paper's contextual model: a mixture of Bayesian regressions with users as groups.

User u has a state s and weights theta_u ~ N(w_s, C_s). The reward of a row with features x is
x' theta_u plus noise, or a click with log-odds x' theta_u. EM (Dempster et al. 1977) maximises the
evidence of users:

    E: l[u, s] = log p(the user's rewards | s), with N(m[u, s], V[u, s]) the posterior of theta_u
       r[u, s] = pi_s exp(l[u, s]) / sum
    M: w_s = mean of m, C_s = mean of V + (m - w_s)(m - w_s)', both weighted by r;
       noise^2 = mean over rows of (r - x'm)^2 + x'V x, weighted by r

Gaussian rewards have the exact marginal likelihood (`condition_on_sums`). For clicks, posterior and
evidence come from `LaplaceClicks`, round by round. C_s has a prior worth one user of variance
`floor`, and pi a Dirichlet prior worth one user in all. The penalised evidence of Gaussian rewards
never falls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from latentbandits.beliefs import joint
from latentbandits.learning.attributes.evidence import (
    by_features,
    conditioned,
    user_blocks,
    user_sums,
)
from latentbandits.learning.backends.backend import AnyLog, LogEngine, engine_of, summary_of
from latentbandits.learning.learners import (
    Candidate,
    Disagreement,
    Learned,
    Learner,
    Replicate,
    Selection,
    Split,
    States,
    judge,
    try_states,
)
from latentbandits.learning.linear.clusters import lloyd
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.population_mixture import far_apart
from latentbandits.learning.user_hash import Keys, bootstrap_weights
from latentbandits.models.attributes.columns import Encoder
from latentbandits.models.attributes.parts import with_parts
from latentbandits.models.checks import FloatArray
from latentbandits.models.linear.gaussian import LinearGaussian, UserSums
from latentbandits.models.linear.logistic import LogisticLinear

_TOLERANCE = 1e-4  # nats per user: EM ends when a pass gains less
_MAX_PASSES = 300
_BURN_IN = 8  # passes of every start; only the best is continued
_STARTS = 4
_STEPS = 10  # of k-means for each start
_SAMPLE = 2_000  # users for the starts


class StateRegressions(NamedTuple):
    """The parameters of S regressions."""

    weights: FloatArray  # (n_states, d)
    covariances: FloatArray  # (n_states, d, d)
    shares: FloatArray  # (n_states,)
    noise: float  # 1 for clicks, where it is unused

    def model(self, is_clicks: bool) -> LinearGaussian | LogisticLinear:
        if is_clicks:
            return LogisticLinear(self.weights, self.covariances, state_prior=self.shares)
        return LinearGaussian(self.weights, self.noise, self.covariances, self.shares)


class RegressionSums(NamedTuple):
    """Sums over users, weighted by their responsibilities; sums of partitions add."""

    shares: FloatArray  # (n_states,)
    means: FloatArray  # (n_states, d): of m
    squares: FloatArray  # (n_states, d, d): of V + m m'
    residual: float  # of (r - x'm)^2 + x'V x, over rows
    n_rows: float
    log_evidence: float


class UserPosteriors(NamedTuple):
    """P(theta | s, rewards) of users, and the log evidence of each state."""

    log_evidence: FloatArray  # (n, n_states)
    mean: FloatArray  # (n, n_states, d)
    covariance: FloatArray  # (n, n_states, d, d)


class PreparedUsers(NamedTuple):
    """The users of a partition, prepared once for all passes."""

    rows: Any  # UserSums; the log for clicks
    keys: Keys


@dataclass(frozen=True, eq=False)
class PrepareSums:
    """Preparation of a partition: the sums of each user, or the rows for clicks."""

    is_clicks: bool

    def __call__(self, log: Log) -> PreparedUsers:
        assert log.features is not None
        if self.is_clicks:
            return PreparedUsers(log, log.keys)
        d = log.features.shape[1]
        blocks = [
            user_sums(log, log.features, np.asarray(log.rewards), block)
            for block in user_blocks(log, d)
        ]
        sums = UserSums(*(np.concatenate(field) for field in zip(*blocks, strict=True)))
        return PreparedUsers(sums, log.keys)


Numbered: TypeAlias = "tuple[tuple[int, StateRegressions], ...]"
"""Mixtures that are fitted in the same passes, by number."""


@dataclass(frozen=True, eq=False)
class RegressionMixture:
    """EM for several mixtures: `summarise` is the E step of a partition, `step` one's M step.

    With `n_replicates`, each mixture is fitted to a Poisson bootstrap of the users.
    """

    prepare: PrepareSums
    floor: float  # prior variance of a weight within a state, worth one user
    n_replicates: int = 0
    seed: int = 0

    def summarise(self, partition: PreparedUsers, mixtures: Numbered) -> dict[int, RegressionSums]:
        once = np.ones(len(partition.keys))
        if not self.n_replicates:
            return {i: self.weighed(partition, mixture, once) for i, mixture in mixtures}
        weights = bootstrap_weights(partition.keys, self.n_replicates, self.seed)
        return {i: self.weighed(partition, mixture, weights[:, i]) for i, mixture in mixtures}

    def weighed(
        self, partition: PreparedUsers, mixture: StateRegressions, weights: FloatArray
    ) -> RegressionSums:
        """Return the sums with user u counted `weights[u]` times."""
        rows = partition.rows
        conditional = posterior(rows, mixture, self.prepare.is_clicks)
        scores = conditional.log_evidence + np.log(mixture.shares)
        top = scores.max(axis=1, keepdims=True)
        taken = np.exp(scores - top)
        total = taken.sum(axis=1, keepdims=True)
        taken *= weights[:, None] / total
        outer = (
            np.einsum("nsi,nsj->nsij", conditional.mean, conditional.mean) + conditional.covariance
        )
        residual = n_rows = 0.0
        if isinstance(rows, UserSums):
            fit = np.einsum("nsij,nij->ns", outer, rows.gram)
            fit -= 2 * np.einsum("nsi,ni->ns", conditional.mean, rows.products)
            fit += rows.squares[:, None]
            residual, n_rows = float((taken * fit).sum()), float(weights @ rows.counts)
        return RegressionSums(
            taken.sum(axis=0),
            np.einsum("ns,nsi->si", taken, conditional.mean),
            np.einsum("ns,nsij->sij", taken, outer),
            residual,
            n_rows,
            float(weights @ (top + np.log(total))[:, 0]),
        )

    def step(self, sums: RegressionSums, mixture: StateRegressions) -> StateRegressions:
        size = np.maximum(sums.shares, 1e-9)
        n_states, d = sums.means.shape
        weights = sums.means / size[:, None]
        spread = sums.squares - size[:, None, None] * np.einsum("si,sj->sij", weights, weights)
        spread += self.floor * np.eye(d)
        covariances = spread / (size + 1)[:, None, None]
        portion = sums.shares + 1 / n_states
        noise = mixture.noise
        if sums.n_rows > 0:
            noise = float(np.sqrt(max(sums.residual / sums.n_rows, 1e-12)))
        symmetric = (covariances + covariances.swapaxes(1, 2)) / 2
        return StateRegressions(weights, symmetric, portion / portion.sum(), noise)

    def objective(self, sums: RegressionSums, mixture: StateRegressions) -> float:
        """Return the evidence of all users plus the log priors of covariances and shares."""
        _, log_det = np.linalg.slogdet(mixture.covariances)
        inverse = np.linalg.inv(mixture.covariances)
        penalty = self.floor * np.trace(inverse, axis1=1, axis2=2) + log_det
        shares = np.log(mixture.shares).sum() / len(mixture.shares)
        return float(sums.log_evidence - penalty.sum() / 2 + shares)


def posterior(partition: Any, mixture: StateRegressions, is_clicks: bool) -> UserPosteriors:
    """Return the posterior of every user of a partition in every state."""
    if not is_clicks:
        model = LinearGaussian(mixture.weights, mixture.noise, mixture.covariances)
        evidence, conditional = model.condition_on_sums(partition)
        return UserPosteriors(evidence, conditional.mean, conditional.covariance)
    log: Log = partition
    model_: Any = LogisticLinear(mixture.weights, mixture.covariances).without_particles
    d = mixture.weights.shape[1]
    whole = joint.prior(model_, log.n_users)
    ends = [np.array(part) for part in (whole.log_weights, *whole.parameters)]
    assert log.features is not None
    condition = by_features(model_, log.features[:, :d], np.asarray(log.rewards))
    for users, belief in conditioned(log, whole, condition):
        for end, part in zip(ends, (belief.log_weights, *belief.parameters), strict=True):
            end[users] = part
    log_weights, mean, factor = ends
    log_weights = log_weights - model_.log_state_prior
    return UserPosteriors(log_weights, mean, factor @ factor.swapaxes(-1, -2))


def ascend(
    learner: RegressionMixture,
    log: LogEngine,
    starts: Sequence[StateRegressions],
    most: int = _MAX_PASSES,
) -> list[tuple[StateRegressions, float]]:
    """Fit a mixture from each start, all in the same passes; return each with its evidence.

    A mixture stops when a pass gains less than `_TOLERANCE` nats per user.
    """
    fits = [(start, -np.inf) for start in starts]
    moving = list(range(len(starts)))
    for _ in range(most):
        if not moving:
            break
        sums = log.fold(learner, tuple((i, fits[i][0]) for i in moving))
        still = []
        for i in moving:
            mixture, before = fits[i]
            now = learner.objective(sums[i], mixture)
            if now - before >= _TOLERANCE * float(sums[i].shares.sum()):
                mixture = learner.step(sums[i], mixture)
                still.append(i)
            fits[i] = mixture, now
        moving = still
    return fits


def regressions(scale: float, is_clicks: bool) -> RegressionMixture:
    """Return the learner for rewards with the standard deviation `scale` (1 for clicks)."""
    return RegressionMixture(PrepareSums(is_clicks), floor=0.01 * scale**2)


def fit_mixture(
    log: LogEngine, n_states: int, n_features: int, scale: float, is_clicks: bool, seed: int
) -> tuple[StateRegressions, float]:
    """Return the best mixture of several starts, and its penalised evidence.

    `scale` is the standard deviation of rewards (1 for clicks); weights of standardised features
    have the same order of magnitude.
    """
    learner = regressions(scale, is_clicks)
    d = n_features
    noise = 1.0 if is_clicks else max(scale, 1e-6)
    alone = StateRegressions(np.zeros((1, d)), scale**2 * np.eye(d)[None], np.ones(1), noise)
    alone, evidence = ascend(learner, log, [alone])[0]
    if n_states == 1:
        return alone, evidence
    sample = log.sample(_SAMPLE, seed)
    points = posterior(learner.prepare(sample).rows, alone, is_clicks).mean[:, 0]
    rng = np.random.default_rng(seed)
    starts = [_grouped(points, n_states, alone, rng) for _ in range(_STARTS)]
    fits = ascend(learner, log, starts, _BURN_IN)
    best = max(fits, key=lambda one: one[1])[0]
    best, evidence = ascend(learner, log, [best])[0]
    order = np.argsort(-best.shares, kind="stable")
    return StateRegressions(
        best.weights[order], best.covariances[order], best.shares[order], best.noise
    ), evidence


def _grouped(
    points: FloatArray, n_states: int, alone: StateRegressions, rng: np.random.Generator
) -> StateRegressions:
    """Return a start: clusters of users by k-means on their whitened weights."""
    root = np.linalg.cholesky(alone.covariances[0] + 1e-9 * np.eye(points.shape[1]))
    scaled: FloatArray = np.linalg.solve(root, points.T).T.astype(np.float64)
    centres = far_apart(scaled, n_states, rng, 1.0)
    centres, group = lloyd(scaled, centres, _STEPS)
    shares = (np.bincount(group, minlength=n_states) + 1.0) / (len(points) + n_states)
    covariances = np.repeat(alone.covariances / 2, n_states, axis=0)
    return StateRegressions(centres @ root.T, covariances, shares, alone.noise)


# The learner of `fit --features`: a mixture of regressions on features of each row.

STATES = (1, 2, 3, 4, 5, 6, 8)
"""Numbers of states that `auto` tries."""


@dataclass(frozen=True)
class SumActionRows:
    """A pass that sums the features of the rows of every action."""

    n_actions: int

    def summarise(self, log: Log, parameters: None) -> FloatArray:
        assert log.features is not None
        sums = np.zeros((self.n_actions, log.features.shape[1]))
        np.add.at(sums, log.actions, log.features)
        return sums


@dataclass(frozen=True)
class RowLearner(Learner):
    """A mixture over users of regressions on the rows' features (`regression.py`)."""

    encoder: Encoder
    is_clicks: bool = False

    def select(self, split: Split, states: States) -> Selection:
        """Choose the fewest states within one standard error of the best held-out evidence."""
        wanted = STATES if states is None else tuple(states)
        split.progress.start("choosing states", len(wanted))

        def attempt(n_states: int) -> Candidate:
            learned = self._learn(split.kept, n_states, split.seed)
            return Candidate.scored(n_states, None, judge(learned, split.held_out), learned)

        rows = try_states(wanted, attempt, lambda row: row.evidence, split.progress)
        chosen = self.choose(rows)
        judged = judge(chosen.fit, split.held_out)
        return Selection(self, tuple(rows), chosen, chosen.fit, judged)

    def learn(self, log: AnyLog, chosen: Candidate, seed: int) -> Learned:
        return self._learn(log, chosen.n_states, seed)

    def _learn(self, log: AnyLog, n_states: int, seed: int) -> Learned:
        engine = engine_of(log)
        scale = self._scale(engine)
        mixture, _ = fit_mixture(engine, n_states, len(self.encoder), scale, self.is_clicks, seed)
        sums = engine.fold(SumActionRows(engine.n_actions), None)
        counts = engine.action_counts
        means = sums / np.maximum(counts, 1)[:, None]
        return Learned(self._model(mixture), means, counts, fitted=mixture)

    def _scale(self, log: AnyLog) -> float:
        return 1.0 if self.is_clicks else max(summary_of(log).rewards.deviation, 1e-6)

    def _model(self, mixture: StateRegressions) -> Any:
        return with_parts(mixture.model(self.is_clicks), encoder=self.encoder)

    def replicates(
        self, log: AnyLog, learned: Learned, n_fits: int, seed: int
    ) -> Iterator[Replicate]:
        """Refit to `n_fits` Poisson bootstraps of the users, all in the same passes."""
        engine = engine_of(log)
        mixture = learned.fitted
        assert isinstance(mixture, StateRegressions)
        learner = regressions(self._scale(engine), self.is_clicks)
        learner = replace(learner, n_replicates=n_fits, seed=seed)
        for again, _ in ascend(learner, engine, [mixture] * n_fits):
            rewards = replace(learned, model=self._model(again)).rewards()
            yield Replicate(rewards, again.shares, learned.counts, again.weights - mixture.weights)

    def widened(self, learned: Learned, disagreement: Disagreement) -> Learned:
        """Add the bootstrap variance of each state's mean weights to the state's covariance.

        The covariance describes users within their state only, not the error of the mean.
        """
        mixture = learned.fitted
        assert isinstance(mixture, StateRegressions)
        assert disagreement.weights is not None
        moved = np.einsum("bsi,bsj->sij", disagreement.weights, disagreement.weights) / len(
            disagreement.weights
        )
        wide = mixture._replace(covariances=mixture.covariances + moved)
        return replace(learned, model=self._model(wide), fitted=wide)

    def settings(self) -> dict[str, Any]:
        """Return the settings of the learner, for the report."""
        return {
            "rewards": "bernoulli" if self.is_clicks else "gaussian",
            "features": list(self.encoder.names),
            "encoded_features": list(self.encoder.labels),
        }
