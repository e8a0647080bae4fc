"""The learner of arms; it chooses the number of states, the noise and within-state variation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from latentbandits.learning.arms import mixture as vb
from latentbandits.learning.arms.mixture import (
    TOLERANCE,
    Ascent,
    Earlier,
    Mixture,
    Partition,
    Prepare,
    Problem,
    ascend,
    best_of,
    joined,
    start_at,
)
from latentbandits.learning.assess.heldout import HeldOut, score
from latentbandits.learning.backends.backend import AnyLog, LogEngine, engine_of
from latentbandits.learning.learners import (
    LEAST_NATS,
    PATIENCE,
    Candidate,
    Disagreement,
    Learned,
    Learner,
    Replicate,
    Selection,
    Split,
    States,
    clearly_better,
    try_states,
    vetoed,
)
from latentbandits.learning.logs.rows import ArmsModel, Log
from latentbandits.learning.logs.tables import LogError
from latentbandits.learning.user_hash import Keys
from latentbandits.models.arms.conjugate import Learnable
from latentbandits.models.arms.gaussian import Gaussian
from latentbandits.models.checks import FloatArray, positive_count

if TYPE_CHECKING:
    from latentbandits.learning.arms.moving import MovingArms

Method = Literal["em", "spectral"]

STATES = tuple(range(1, 21))
"""Numbers of states that `auto` tries, until the log evidence falls."""

STRENGTHS = (3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, inf)
"""Candidate strengths, in rewards, of the prior for users' variation within a state."""

APART = 30.0
"""Strength of the pooled prior, in rewards, with which states are held apart."""

LARGEST = 5_000
"""The largest number of states times actions of a model of arms."""

LARGE = 10_000_000
LARGE_TOLERANCE = 1e-6
"""For logs of more than LARGE rewards: ELBO gain per user, in nats, below which ascent stops."""

_FEW_USERS = 4_000  # number of users on which the evidence of a number of states is measured


@dataclass(frozen=True, eq=False)
class ArmsLearner(Learner):
    """A mixture over users of conjugate arms, fitted by variational Bayes (`mixture`).

    `by_action` (one noise per action of Gaussian rewards) and `strength` (of the variation within
    states) are chosen by held-out evidence if they are None. An `earlier` model is one of the
    starts of every fit with the same number of states. `pooling` is the strength of the pooled
    prior; None: it is learned.
    """

    family: Learnable = field(default_factory=Gaussian)
    method: Method = "em"
    n_starts: int = 6
    by_action: bool | None = None
    strength: float | None = None
    earlier: Earlier | None = None
    pooling: float | None = None

    def apart(self) -> ArmsLearner:
        """Return a learner that holds states apart.

        The ELBO is too low where states overlap. So its maximum may be at a pooled prior that makes
        all states equal, although there are users of several states and other users' rewards show
        it. With a fixed strength, states stay apart; other users must then show whether they
        predict better.
        """
        return replace(self, pooling=APART)

    def with_actions(self) -> ArmsLearner:
        from latentbandits.learning.arms.hidden_choices import WithActions

        return replace(self, family=WithActions(self.family), strength=None)

    def moving(self, selection: Selection, session_gap: float | None) -> MovingArms | None:
        """Return a learner that starts from the states that stand still, by their evidence."""
        from latentbandits.learning.arms.moving import MovingArms

        if selection.learned.log_actions is not None:
            return None
        family = self.family.with_noise_by_action() if self.by_action else self.family
        rows = [row for row in selection.rows if row.fit is not None and row.n_states > 1]
        rows.sort(key=lambda row: -_evidence(row))
        return MovingArms(family, tuple(row.fit.mixture for row in rows), session_gap=session_gap)

    def select(self, split: Split, states: States) -> Selection:
        """Fit every number of states to the `kept` users, and choose by log evidence.

        A number of states is rejected if its held-out evidence is more than two paired standard
        errors below the best. If `states` is None, 1, 2, ... are tried until log evidence falls.
        """
        wanted = STATES if states is None else tuple(states)
        split.progress.start("choosing the number of states", len(wanted))
        problem = self._problem(split.kept)
        rows = try_states(
            wanted, lambda n_states: self._try(problem, split, n_states), _evidence, split.progress,
            least=LEAST_NATS, patience=PATIENCE if states is None else inf,
        )  # fmt: skip
        if all(row.evidence is None for row in rows):
            raise LogError(rows[0].reason)
        chosen = self.choose(rows)
        learner, fitted, judged = self._settle(problem, split, chosen)
        learned = learner._learned(split.kept, fitted)
        return Selection(learner, tuple(rows), chosen, learned, judged)

    def choose(self, rows: Sequence[Candidate]) -> Candidate:
        """Return the candidate of highest log evidence that held-out evidence does not reject.

        Among candidates whose log evidence is about equal, the one with the fewest states wins.
        """
        fitted = [row for row in rows if row.evidence is not None]
        left = [row for row in fitted if not vetoed(row, fitted)]
        best = max(_evidence(row) for row in left)
        return min(
            (row for row in left if _evidence(row) >= best - LEAST_NATS),
            key=lambda row: row.n_states,
        )

    def learn(self, log: AnyLog, chosen: Candidate, seed: int) -> Learned:
        """Learn from `log`, with the fit of `chosen` as one of the starts."""
        log = engine_of(log)
        check_size(log, chosen.n_states)
        problem = self._problem(log)
        start = None if chosen.fit is None else chosen.fit.mixture
        fitted = finish(problem, self._ascent(problem, log, chosen.n_states, seed, start))
        if self.strength is not None:
            fitted = fitted.with_strength(self.strength)
        return self._learned(log, fitted)

    def replicates(
        self, log: AnyLog, learned: Learned, n_fits: int, seed: int
    ) -> Iterator[Replicate]:
        """Refit to `n_fits` Poisson bootstraps of the users, all in the same passes."""
        fitted = learned.arms
        assert fitted is not None
        family = fitted.family
        problem = Problem.from_log(
            family, log, n_replicates=n_fits, seed=seed, strength=self.pooling
        )
        start = fitted.mixture.take(np.zeros(n_fits, np.int64))
        mixture = ascend(problem, start, tolerance=0.02, max_passes=300).mixture
        counting, _ = family.counts_and_sums
        counts = problem.totals.statistics @ counting
        for i in range(n_fits):
            means = family.at_noise(mixture.noise[i]).moments(mixture.phi[i])[0]
            yield Replicate(means, mixture.state_prior()[i], counts[i].round().astype(np.int64))

    def widened(self, learned: Learned, disagreement: Disagreement) -> Learned:
        """Return the model with at least the replicates' variance as estimation variance."""
        assert learned.arms is not None
        wide = learned.arms.widened(disagreement.variance())
        return replace(learned, model=wide.model(), arms=wide)

    def settings(self) -> dict[str, Any]:
        return {
            "rewards": self.family.family_name,
            "method": self.method,
            "noise": self.family.known,
            "noise_by_action": bool(self.by_action),
        }

    def _problem(self, log: LogEngine) -> Problem:
        family = self.family
        if self.by_action:
            family = family.with_noise_by_action()
        return Problem.from_log(family, log, strength=self.pooling)

    def _try(self, problem: Problem, split: Split, n_states: int) -> Candidate:
        try:
            check_size(split.kept, n_states)
            ascent = self._ascent(problem, split.kept, n_states, split.seed)
        except LogError as error:
            return Candidate(n_states, None, reason=str(error))
        fitted = finish(problem, ascent, most_users=_FEW_USERS)
        scores = _score(fitted, split.held_out)
        return Candidate.scored(
            len(fitted.means), None, scores, ascent,
            elbo=fitted.elbo, log_evidence=fitted.log_evidence, requested=n_states,
        )  # fmt: skip

    def _ascent(
        self,
        problem: Problem,
        log: LogEngine,
        n_states: int,
        seed: int,
        start: Mixture | None = None,
    ) -> Ascent:
        n_starts = self.n_starts if start is None else 2
        tolerance = TOLERANCE
        if log.n_events > LARGE:  # a start chosen on many users is already close to the maximum
            n_starts = 0 if start is not None else n_starts
            tolerance = LARGE_TOLERANCE * log.n_users
        if self.method == "spectral":
            from latentbandits.learning.mixture import spectral_start

            start, n_starts = spectral_start(problem, log, n_states, seed), 0
        starts = [] if start is None else [start]
        if self.earlier is not None and len(self.earlier.shares) == n_states:
            with suppress(LogError):  # means do not determine the family's parameters
                starts.append(start_at(problem, self.earlier.means, self.earlier.shares))
        extra = joined(*starts) if starts else None
        return best_of(
            problem, n_states, n_starts=n_starts, extra=extra, tolerance=tolerance, seed=seed
        )

    def _settle(
        self, problem: Problem, split: Split, chosen: Candidate
    ) -> tuple[ArmsLearner, FittedArms, HeldOut]:
        """Choose the noise of each action and the variation within states by held-out evidence."""
        assert chosen.fit is not None
        held_out, progress = split.held_out, split.progress
        learner, fitted = self, finish(problem, chosen.fit)
        best = _score(fitted, held_out)
        if self.by_action is None and self.family.noise_is_free:
            other = replace(self, by_action=True)
            other_problem = other._problem(split.kept)
            again = finish(other_problem, ascend(other_problem, chosen.fit.mixture))
            judged = _score(again, held_out)
            if clearly_better(judged, best):
                learner, fitted, best = other, again, judged
        if self.strength is not None:
            fitted = fitted.with_strength(self.strength)
            return learner, fitted, _score(fitted, held_out)
        progress.start("choosing the variation within states", len(STRENGTHS) - 1)
        strength, none = inf, best
        for nu in STRENGTHS[:-1]:
            judged = _score(fitted.with_strength(nu), held_out)
            progress.advance(1)
            if clearly_better(judged, none) and judged.evidence > best.evidence:
                strength, best = nu, judged
        return replace(learner, strength=strength), fitted.with_strength(strength), best

    def _learned(self, log: LogEngine, fitted: FittedArms) -> Learned:
        return Learned(fitted.model(), None, log.action_counts, arms=fitted)


def _score(fitted: FittedArms, held_out: Log) -> HeldOut:
    return score(fitted.model(), held_out, log_actions=fitted.log_actions)


def check_size(log: AnyLog, n_states: int) -> None:
    """Raise LogError if a log is too small, or a model too large, for `n_states` states."""
    positive_count("states", n_states)
    if n_states > log.n_users:
        raise LogError(
            f"{n_states} states are more than the log's {log.n_users} users: ask for at most "
            f"{log.n_users}, and far fewer to learn from"
        )
    if n_states * log.n_actions > LARGEST:
        raise LogError(
            f"a model of arms with {n_states} states and {log.n_actions:,} actions is too large "
            f"(states times actions may be {LARGEST:,}): use --kind linear for a large catalogue"
        )


def _evidence(row: Candidate) -> float:
    return -inf if row.log_evidence is None else row.log_evidence


# A fitted mixture, and the model made from it with its prior for a new user's parameters.
#
# The prior variance of the model's mean rewards is the sum of two parts: the estimation error of a
# state's mean (`observed`), and the variation of users within a state. The second part is given by
# a strength nu in rewards: users' parameters have the family's prior around the state's, worth nu
# rewards. An infinite nu means no variation.

MOST_MEANS = 1_500
"""Largest number of states times actions for the full matrix; above it, one block per action."""

MOST_USERS = 20_000
"""The number of users, sampled by hash, on which the loss is measured and then scaled to all."""

_BLOCK = 2**23  # user scores held in memory at once
_LEAST = 1e-2  # fraction of the complete information that is kept in every direction

# The log evidence of a mixture, used to choose the number of states.
#
# The ELBO treats the users' states as independent of the parameters. If states overlap, it is too
# low, and the gap grows with the number of states, so a smaller number of states would be chosen.
# Laplace's method at the same maximum uses the observed information I (Louis 1982); the ELBO uses
# the information of labelled rewards:
#
#     log p(rewards) = ELBO + 1/2 log(det I_labelled / det I_observed) - centre
#
# The last term is the same correction for the mean m_a of the pooled prior, which is estimated from
# the same log. With a prior on m_a worth one reward, and n[s, a] rewards of a state,
#
#     centre = 1/2 sum_a d log(1 + sum_s kappa n[s, a] / (kappa + n[s, a])),
#
# with d the number of free parameters of an action. Without this term a model of one state would
# pay no penalty for its means, because they equal m_a. If states do not overlap, the first
# correction vanishes. The S! permutations of the states are not counted, because that would reward
# states that are identical.


def log_evidence(family: Learnable, elbo: float, information: Observed) -> float:
    """Return the log evidence of a mixture with this ELBO and this observed information."""
    kappa, n = information.strength, information.counts
    known = 1.0 + (kappa * n / (kappa + n)).sum(axis=0)
    centre = 0.5 * family.n_parameters * float(np.log(known).sum())
    return elbo + information.missing - centre


@dataclass(frozen=True, eq=False)
class FittedArms:
    """One mixture (R = 1), states sorted by falling share, with both parts of its uncertainty."""

    family: Learnable
    mixture: Mixture
    elbo: float
    log_evidence: float  # the ELBO corrected for overlapping states
    estimation: FloatArray  # (S, A): variance of the estimate of each mean reward
    strength: float = inf  # nu: strength, in rewards, of the prior for the variation within a state

    @property
    def within(self) -> FloatArray:
        """Variance of users' mean rewards within a state, `(S, A)`."""
        if self.strength == inf:
            return np.zeros_like(self.estimation)
        return self._settled.within(self.mixture.phi[0], self.strength)

    @property
    def means(self) -> FloatArray:
        """Mean rewards, `(S, A)`."""
        return self._settled.moments(self.mixture.phi[0])[0]

    @property
    def log_actions(self) -> FloatArray | None:
        """Log probabilities of actions `(S, A)`; None if states do not tell which are chosen."""
        return self.family.log_actions(self.mixture.phi[0])

    @property
    def _settled(self) -> Learnable:
        """The family with the noise of this mixture.

        Estimated noise includes the variation between the users of a state.
        """
        noise = self.mixture.noise[0]
        if self.family.noise_is_free and self.strength < inf:
            noise = noise * (self.strength / (self.strength + 1))
        return self.family.at_noise(noise)

    def model(self) -> ArmsModel:
        """Return the family's model, with both parts in its prior variance."""
        variance = self.estimation + self.within
        shares = self.mixture.state_prior()[0]
        model: ArmsModel = self._settled.learned(self.mixture.phi[0], variance, shares)
        return model

    def with_strength(self, strength: float) -> FittedArms:
        return replace(self, strength=strength)

    def widened(self, variance: FloatArray) -> FittedArms:
        """Return a copy whose estimation variance is at least `variance` (S, A)."""
        return replace(self, estimation=np.maximum(self.estimation, variance))


def finish(problem: Problem, ascent: Ascent, *, most_users: int = MOST_USERS) -> FittedArms:
    """Measure the estimation error and the evidence of a fitted mixture.

    The loss of information from unknown labels is measured on at most `most_users` users.
    """
    mixture = ascent.mixture
    elbo = float(ascent.elbo[0])
    information = observed(problem, mixture, most_users=most_users)
    evidence = log_evidence(problem.family, elbo, information)
    return FittedArms(problem.family, mixture, elbo, evidence, information.variance)


# Standard errors of the means of a mixture: the observed information of Louis (1982).
#
# The posterior of the ELBO treats the users' states as independent of the parameters, and is too
# narrow if states overlap. The observed information of the marginal likelihood is the information
# of labelled rewards minus the loss from unknown labels. In the natural parameter lambda[s, a] of a
# mean mu[s, a] (d mu / d lambda = V, the variance of a reward) a user's score is
#
#     h[u, s, a] = sum of rewards - count x mu[s, a],
#
# the complete information is the expected count times V, and the loss is the covariance of h over
# the user's state. The states' shares enter as log odds. Returned variances are V^2 Var(lambda).


class Parameters(NamedTuple):
    """The inputs of a pass over scores: the broadcast of the mixture, its means and shares."""

    current: Any  # what `responsibilities` or the E step of a chain needs
    means: FloatArray  # (S, A), in the units of the statistics
    shares: FloatArray  # (S,)
    counting: FloatArray  # (K,)
    paying: FloatArray  # (K,)

    @classmethod
    def of(cls, family: Learnable, mixture: Mixture, current: Any) -> Parameters:
        """Return the inputs of one mixture (R = 1) of a family, and what its pass broadcasts."""
        means = family.at_noise(mixture.noise[0]).mean_statistic(mixture.phi[0])
        return cls(current, means, mixture.state_prior()[0], *family.counts_and_sums)


class Observed(NamedTuple):
    """The information about a mixture in a log with unknown labels."""

    variance: FloatArray  # (S, A): variance of each mean reward's estimate, in squared rewards
    missing: float  # half the log of det(complete information) / det(observed information)
    counts: FloatArray  # (S, A): expected number of rewards in each state
    strength: FloatArray  # (A,): strength of the pooled prior, in rewards


def observed(
    problem: Problem, mixture: Mixture, *, most_users: int = MOST_USERS, seed: int = 0
) -> Observed:
    """Measure the observed information of one mixture (R = 1).

    The loss is measured on `most_users` users, sampled by hash, and scaled to all users.
    """
    current = vb.broadcast(problem.family.at_noise(mixture.noise[0]), mixture)
    parameters = Parameters.of(problem.family, mixture, current)
    n_users = problem.engine.n_users
    blocks = parameters.means.size > MOST_MEANS
    sampled = None if n_users <= most_users else problem.engine.chosen_keys(most_users, seed)
    loss = problem.engine.fold(LossPass(problem.prepare, blocks, sampled), parameters)
    matrix = max(1.0, n_users / most_users) * loss
    return observed_less(problem, mixture, problem.sums(mixture), lambda _: matrix, blocks)


def observed_less(
    problem: Problem,
    mixture: Mixture,
    sums: vb.Sums,
    loss: Callable[[FloatArray], FloatArray],
    blocks: bool = False,
) -> Observed:
    """Return the information of labelled rewards less the share `loss` of it, `(S, A)`."""
    family, phi = problem.family.at_noise(mixture.noise[0]), mixture.phi[0]
    unit = family.unit
    variance = family.reward_variance(phi) / unit**2
    counts = sums.statistics[0] @ family.counts_and_sums[0]
    prior = family.prior(problem.centre, mixture.strength)[0]
    prior_variance = family.prior_variance(prior) / unit**2
    complete = counts * variance + variance**2 / prior_variance
    shares = mixture.state_prior()[0]
    matrix = loss(counts * variance)
    spread, missing = (
        _by_action(complete, matrix)
        if blocks
        else _whole(complete, matrix, shares, problem.engine.n_users)
    )
    # The mean of the pooled prior is itself estimated from all rewards of the action.
    worth = variance / prior_variance
    weight = worth / (counts + worth)
    pooled = weight**2 * variance / np.maximum(counts.sum(axis=0), 1.0)
    estimated: FloatArray = unit**2 * (variance**2 * spread + pooled)
    return Observed(estimated, missing, counts, shares @ worth)


@dataclass(frozen=True, eq=False)
class LossPass:
    """A pass that sums the loss over all users, or over the users whose keys are `chosen`.

    The loss is the information lost because labels are unknown: a matrix of the size
    S A + S - 1, or one block `(S, S)` per action.
    """

    prepare: Prepare
    blocks: bool
    chosen: Keys | None

    def summarise(self, partition: Partition, parameters: Parameters) -> FloatArray:
        users = np.arange(partition.n_users)
        if self.chosen is not None:
            users = np.flatnonzero(np.isin(partition.keys, self.chosen))
        size = parameters.means.size
        n_states, n_actions = parameters.means.shape
        free = size + n_states - 1
        shape = (n_actions, n_states, n_states) if self.blocks else (free, free)
        loss = np.zeros(shape)
        rows = max(1, _BLOCK // size)
        for start in range(0, len(users), rows):
            block = users[start : start + rows]
            part = replace(
                partition, statistics=partition.statistics[block], keys=partition.keys[block]
            )
            loss += summarise(part, parameters, self.blocks)
        return loss


def summarise(partition: Partition, parameters: Parameters, blocks: bool) -> FloatArray:
    """Sum the covariance of the users' scores over their states."""
    taken = vb.responsibilities(partition, parameters.current)[0][:, 0]  # (n, S)
    statistics = partition.dense()
    counts = np.einsum("nka,k->na", statistics, parameters.counting)
    sums = np.einsum("nka,k->na", statistics, parameters.paying)
    scores = sums[:, None] - counts[:, None] * parameters.means  # (n, S, A)
    weighted = taken[:, :, None] * scores
    if blocks:
        means: FloatArray = np.einsum("nsa,nta->ast", weighted, weighted, optimize=True)
        products = np.einsum("nsa,nsa->as", weighted, scores)
        diagonal = np.zeros_like(means)
        index = np.arange(means.shape[1])
        diagonal[:, index, index] = products
        return diagonal - means
    return _covariance(taken, scores, weighted, parameters.shares)


def _covariance(
    taken: FloatArray, scores: FloatArray, weighted: FloatArray, shares: FloatArray
) -> FloatArray:
    """Return E[h h'] - E[h] E[h]' over the users' states, summed over users.

    h holds the scores of the means, then the scores of the shares.
    """
    n, n_states, n_actions = scores.shape
    n_means = n_states * n_actions
    size = n_means + n_states - 1
    labels = np.eye(n_states)[:, : n_states - 1] - shares[: n_states - 1]  # (S, S - 1)
    average = np.empty((n, size))
    average[:, :n_means] = weighted.reshape(n, -1)
    average[:, n_means:] = taken @ labels
    matrix = -(average.T @ average)
    for s in range(n_states):
        block = slice(s * n_actions, (s + 1) * n_actions)
        root = np.sqrt(taken[:, s, None]) * scores[:, s]
        matrix[block, block] += root.T @ root
        cross = np.outer(weighted[:, s].sum(axis=0), labels[s])
        matrix[block, n_means:] += cross
        matrix[n_means:, block] += cross.T
    matrix[n_means:, n_means:] += labels.T @ (taken.sum(axis=0)[:, None] * labels)
    return matrix


def _whole(
    complete: FloatArray, loss: FloatArray, shares: FloatArray, n_users: int
) -> tuple[FloatArray, float]:
    """Return Var(lambda) `(S, A)` from the inverse information, and `Observed.missing`.

    In directions where unknown labels leave no information, a part of the labelled information is
    kept.
    """
    n_means, free = complete.size, len(shares) - 1
    information = -loss
    information[:n_means, :n_means] += np.diag(complete.ravel())
    odds = shares[:free]
    information[n_means:, n_means:] += n_users * (np.diag(odds) - np.outer(odds, odds))
    scale = np.ones(n_means + free)
    scale[:n_means] = complete.ravel() ** -0.5
    if free:
        scale[n_means:] = (n_users * odds * (1 - odds)) ** -0.5
    values, vectors = np.linalg.eigh(information * scale * scale[:, None])
    left = np.maximum(values, _LEAST)
    inverse = (vectors**2 / left).sum(axis=1)
    spread: FloatArray = (inverse * scale**2)[:n_means].reshape(complete.shape)
    # det(diag(p) - p p') is the product of all shares, including the last state's.
    of_shares = float(np.log(shares).sum() - np.log(odds * (1 - odds)).sum())
    return spread, 0.5 * (of_shares - float(np.log(left).sum()))


def _by_action(complete: FloatArray, loss: FloatArray) -> tuple[FloatArray, float]:
    """Return Var(lambda) `(S, A)` with actions treated as independent, and `Observed.missing`."""
    scale = complete.T**-0.5  # (A, S)
    lost = loss * scale[:, :, None] * scale[:, None, :]
    values, vectors = np.linalg.eigh(np.eye(lost.shape[1]) - lost)
    left = np.maximum(values, _LEAST)
    inverse = (vectors**2 / left[:, None, :]).sum(axis=2)
    spread: FloatArray = (inverse * scale**2).T
    return spread, -0.5 * float(np.log(left).sum())
