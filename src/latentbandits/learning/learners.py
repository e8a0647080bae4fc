"""Learners and what they learn: selection on held-out users, and errors estimated by the bootstrap.

`learning/arms/` and `learning/linear/` implement the protocol `Learner`: select on held-out users,
learn from all, refit for the bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from latentbandits.learning.assess.heldout import HeldOut, score
from latentbandits.learning.backends.backend import AnyLog, LogEngine
from latentbandits.learning.logs.rows import Cells, Log, LogSummary
from latentbandits.learning.logs.tables import LogError
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.protocol import with_defaults
from latentbandits.report.report import Estimate, Progress, Silent

if TYPE_CHECKING:
    from latentbandits.learning.arms.learner import FittedArms
    from latentbandits.learning.arms.moving import MovingArms


@dataclass(frozen=True, eq=False)
class Learned:
    """A learned model, with the features and counts of its actions."""

    model: Any  # GaussianArms, BernoulliArms, ..., LinearGaussian
    features: FloatArray | None  # (n_actions, n_features); None: actions are numbered
    counts: IntArray  # (n_actions,): rewards that an action was learned from
    shrinkage: FloatArray | None = None  # (n_states,): shrinkage of the covariances
    fitted: Any = None  # data of the learner, for widening or refitting the model
    arms: FittedArms | None = None  # the mixture behind a model of arms

    @property
    def log_actions(self) -> FloatArray | None:
        """Log probabilities of actions `(S, A)`; None if states do not tell which are chosen."""
        return None if self.arms is None else self.arms.log_actions

    def known_rows(self, log: Log) -> Log:
        """Return the rows of actions that were learned; rows that have features are all known."""
        return log if log.features is not None else log.of_events(self.counts[log.actions] > 0)

    def rewards(self) -> FloatArray:
        """Return the mean reward of every action in every state, `(n_states, n_actions)`."""
        context = None if self.features is None else self.features[None]
        rewards: FloatArray = self.model.expected_rewards(context)[0]
        return rewards


def rows_as_actions(learned: Learned, log: Log) -> tuple[Learned, Log]:
    """Return model and log, with rows that have features as separate actions with these."""
    if log.features is None:
        return learned, log
    rows_log = replace(
        log,
        actions=np.arange(log.n_events),
        action_ids=tuple(str(row) for row in range(log.n_events)),
    )
    counts = np.ones(log.n_events, np.int64)
    return replace(learned, features=log.features, counts=counts), rows_log


class Replicate(NamedTuple):
    """A fit to resampled users."""

    rewards: FloatArray  # (n_states, n_actions)
    shares: FloatArray  # (n_states,)
    counts: IntArray  # (n_actions,): rewards that an action was learned from
    moved: FloatArray | None = None  # (n_states, n_features): its weights less those of all users,
    # for a fit whose states are already in the same order


States: TypeAlias = Sequence[int] | None
"""The numbers of states that a learner tries; None: its usual ones."""


class Split(NamedTuple):
    """Users to learn from and users to choose by, with the seed and the progress of the choice."""

    kept: LogEngine
    held_out: Log
    seed: int = 0
    progress: Progress = Silent()


class Learner(Protocol):
    """A learner of one kind of model; a class of its own subclasses this one.

    `apart`, `with_actions` and `moving` return the learner of a variant of the model; None if there
    is none.
    """

    def select(self, split: Split, states: States) -> Selection:
        """Fit candidates to the kept users, score them on the held-out users, and choose.

        The selection holds the learner with all settings fixed, the choice, and its model of the
        kept users.
        """

    def choose(self, rows: Sequence[Candidate]) -> Candidate:
        """Choose among candidates; those without evidence could not be fitted."""
        return fewest_states(rows)

    def learn(self, log: AnyLog, chosen: Candidate, seed: int) -> Learned:
        """Learn the chosen model from all users of `log`."""

    def replicates(
        self, log: AnyLog, learned: Learned, n_fits: int, seed: int
    ) -> Iterator[Replicate]:
        """Yield fits to resampled users, for the bootstrap; their states are in any order.

        A learner that estimates the errors of its means otherwise yields nothing.
        """
        yield from ()

    def widened(self, learned: Learned, disagreement: Any) -> Learned:
        """Return the model with its prior widened by the variance of the replicates.

        That variance comes from `disagreement`.
        """
        return learned

    def settings(self) -> dict[str, Any]:
        """Return the settings of the learner, for the report."""

    def apart(self) -> Learner | None:
        """Return a learner that holds states apart."""
        return None

    def with_actions(self) -> Learner | None:
        """Return a learner of rewards together with the hidden choice of actions."""
        return None

    def moving(self, selection: Selection, session_gap: float | None) -> MovingArms | None:
        """Return a learner of the `selection` with a state that moves."""
        return None


CLEAR = 2.0
"""Paired standard errors beyond which a difference is clear, in every choice of a fit."""

LEAST_NATS = 2.0
"""The least difference of log evidence over all held-out users that counts in a choice."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """One candidate of model selection and its scores.

    If `evidence` is None, the candidate could not be fitted; `reason` says why.
    """

    n_states: int
    rank: int | None
    evidence: float | None = None  # mean log density of a held-out reward, in nats
    rmse: float | None = None
    by_user: FloatArray | None = None  # (n_users,): log evidence of each user's sequence
    reason: str = ""
    elbo: float | None = None  # of the kept users, for a mixture of arms
    log_evidence: float | None = None  # the same, corrected where states overlap
    requested: int | None = None  # number of states before empty ones were dropped; None: the same
    fit: Any = None  # what was fitted to the kept users, in the learner's own form

    @classmethod
    def scored(
        cls, n_states: int, rank: int | None, scores: HeldOut, fit: Any = None, **more: Any
    ) -> Candidate:
        """Return a candidate with the scores of the held-out users under its `fit`."""
        found = scores.evidence, scores.rmse, scores.by_user()
        return cls(n_states, rank, *found, fit=fit, **more)

    def row(self, chosen: bool) -> dict[str, Any]:
        return {
            "states": self.n_states if self.requested is None else self.requested,
            "kept_states": self.n_states,
            "rank": self.rank,
            "elbo": self.elbo,
            "log_evidence": self.log_evidence,
            "evidence": self.evidence,
            "rmse": self.rmse,
            "chosen": chosen,
            "reason": self.reason,
        }


@dataclass(frozen=True, eq=False)
class Selection:
    """The chosen setting, and all settings that were compared."""

    learner: Learner  # with all its settings fixed
    rows: tuple[Candidate, ...]
    chosen: Candidate
    learned: Learned  # from the kept users only
    judged: HeldOut  # scores of the held-out users under `learned`
    warnings: tuple[str, ...] = ()
    further: tuple[Learned | None, ...] = ()  # learned without a part of the kept users each;
    # None: that could not be learned


PATIENCE = 2
"""Numbers of states in a row that do not raise a score, after which no more are tried."""


def try_states(
    wanted: Sequence[int],
    attempt: Callable[[int], Candidate],
    score_of: Callable[[Candidate], float | None],
    progress: Progress,
    *,
    least: float = 0.0,
    patience: float = PATIENCE,
) -> list[Candidate]:
    """Try numbers of states, until one cannot be fitted or `patience` of them raise no score.

    Scores within `least` of the best count as equal to it.
    """
    rows: list[Candidate] = []
    for i, n_states in enumerate(wanted):
        rows.append(attempt(n_states))
        progress.advance(1)
        scores = [-np.inf if one is None else one for one in map(score_of, rows)]
        best = next(place for place, one in enumerate(scores) if one >= max(scores) - least)
        if rows[-1].evidence is None or len(rows) - 1 - best >= patience:
            progress.advance(len(wanted) - i - 1)
            break
    return rows


class Step(NamedTuple):
    """An optional step of a fit, and its effect on the log evidence of a held-out user."""

    name: str
    nats: Estimate  # evidence of a user's rewards with the step, less that without it
    used: bool  # it is left out if the evidence is clearly lower with it

    @property
    def warning(self) -> str:
        """The sentence about a step that is not used."""
        return (
            f"the {self.name} was left out: it changes the log evidence of a held-out user by "
            f"{self.nats:+}"
        )

    def row(self) -> dict[str, Any]:
        """Return the step as plain data for the report."""
        return {
            "step": self.name,
            "nats_per_user": self.nats.mean,
            "stderr": self.nats.stderr if np.isfinite(self.nats.stderr) else None,
            "used": self.used,
        }


def try_step(name: str, before: FloatArray, after: FloatArray) -> Step:
    """Compare the log evidence of users without (`before`) and with a step, `(n_users,)`.

    >>> try_step("widening", np.array([-9.0, -7.0]), np.array([-19.0, -16.0])).used
    False
    """
    return Step(name, Estimate.from_values(after - before), not clearly_below(after, before))


def judge(
    learned: Learned,
    log: Log,
    cells: Cells | None = None,
    log_actions: FloatArray | None = None,
) -> HeldOut:
    """Score the model on the users of `log`, for the actions whose features it knows.

    With `cells`, the scores have the probability of each reward's cell too. With `log_actions`,
    the actions of a log tell about the states of arms.
    """
    if learned.features is None:
        return score(learned.model, log, cells=cells, log_actions=log_actions)
    if log.features is not None:
        rows, rows_log = rows_as_actions(learned, log)
        scores = score(rows.model, rows_log, rows.features)
        return replace(scores, action=log.actions[scores.action])
    known = learned.counts[log.actions] > 0
    if not known.any():
        raise LogError("none of the held-out users' actions were seen among the other users")
    return score(learned.model, log.of_events(known), learned.features, cells=cells)


def fewest_states(rows: Sequence[Candidate]) -> Candidate:
    """Return the candidate of the best rank with the fewest states that is not clearly worse.

    Not clearly worse is within one paired standard error (over users) of the best evidence.

    >>> wide, narrow = np.array([-9.0, -7.0, -8.0]), np.array([-9.0, -7.1, -7.8])
    >>> rows = [Candidate(2, None, -8.0, 1.0, wide), Candidate(3, None, -7.97, 1.0, narrow)]
    >>> fewest_states(rows).n_states
    2
    """
    fitted = [row for row in rows if row.evidence is not None]
    best = _best(fitted)
    return min(
        (row for row in fitted if row.rank == best.rank and not vetoed(row, fitted, 1.0, least=0)),
        key=lambda row: row.n_states,
    )


def vetoed(
    row: Candidate, rows: Sequence[Candidate], errors: float = CLEAR, least: float = LEAST_NATS
) -> bool:
    """Return whether the evidence of `row` is clearly below the best row's."""
    best = _best(rows)
    assert row.by_user is not None
    assert best.by_user is not None
    return clearly_below(row.by_user, best.by_user, errors, least)


def clearly_below(
    one: FloatArray, other: FloatArray, errors: float = CLEAR, least: float = LEAST_NATS
) -> bool:
    """Return whether log evidence by user is lower by more than `errors` paired standard errors.

    Almost equal candidates can differ by a small but significant amount. So it must also be lower
    by more than `least` nats in all.
    """
    lead = other - one
    stderr = lead.std(ddof=1) / np.sqrt(len(lead)) if len(lead) > 1 else 0.0
    return bool(lead.mean() > errors * stderr and lead.sum() > least)


def clearly_better(one: HeldOut, other: HeldOut) -> bool:
    """Return whether the evidence of held-out users is clearly higher in `one`."""
    return clearly_below(other.by_user(), one.by_user())


def _best(rows: Sequence[Candidate]) -> Candidate:
    return max(rows, key=lambda row: -np.inf if row.evidence is None else row.evidence)


# Estimate the errors of a fit by fitting resampled users (bootstrap).
#
# The bootstrap resamples the users and learns the model again. The variance between the fits widens
# the model's prior. It also gives epsilon and delta of Theorem 2: with probability 1 - delta,
# |mu_hat - mu| <= epsilon for all states and actions at once.

# Match the states of two fits by their mean rewards, because labels of states are arbitrary.


def align(
    rewards: FloatArray, reference: FloatArray, weights: FloatArray | None = None
) -> IntArray:
    """Return the state of `rewards` (n_states, n_actions) that matches each state of `reference`.

    The assignment has the least total squared distance; `weights` are the weights of actions.

    >>> align(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.9, 0.1], [0.1, 0.9]]))
    array([1, 0])
    """
    from scipy.optimize import linear_sum_assignment

    scale = np.ones(rewards.shape[1]) if weights is None else np.sqrt(weights)
    a, b = reference * scale, rewards * scale
    distance = (a**2).sum(axis=1)[:, None] - 2 * a @ b.T + (b**2).sum(axis=1)
    state: IntArray = linear_sum_assignment(distance)[1]
    return state


DELTAS = (0.5, 0.2, 0.1, 0.05)

LARGEST_RATIO = 1.25
"""Limit on the standard deviation of a new user's reward, relative to that of logged rewards."""

_FEW_REWARDS = 30  # an action with fewer rewards is compared with all rewards
_SCALES = (1.0, 0.5, 0.25, 0.1)


@dataclass(frozen=True, eq=False)
class Disagreement:
    """Differences of the fits to resampled users from the fit to all users, state by state."""

    rewards: FloatArray  # (n_fits, n_states, n_actions); NaN where a resample never saw the action
    shares: FloatArray  # (n_fits, n_states)
    weights: FloatArray | None = None  # (n_fits, n_states, n_features): of regressions

    def epsilon(self, delta: float, among: BoolArray | None = None) -> float:
        """Return the largest error over states and actions at its 1 - `delta` quantile over fits.

        `among` restricts the actions.
        """
        chosen = self.rewards if among is None else self.rewards[:, :, among]
        largest = np.abs(np.nan_to_num(chosen)).max(axis=(1, 2))
        return float(np.quantile(largest, 1 - delta, method="higher"))

    def typical(self, counts: IntArray) -> float:
        """Return the root mean square error over states and actions, weighted by `counts`."""
        known = ~np.isnan(self.rewards)
        weights = np.broadcast_to(counts, self.rewards.shape) * known
        squares = np.where(known, self.rewards, 0.0) ** 2
        return float(np.sqrt((weights * squares).sum() / weights.sum()))

    def variance(self) -> FloatArray:
        """Return the mean squared difference of every mean reward, `(n_states, n_actions)`."""
        mean: FloatArray = np.mean(np.nan_to_num(self.rewards) ** 2, axis=0)
        return mean

    def of_more_users(self, learned: Learned, other: Learned, share: float) -> Disagreement:
        """Return the disagreement about `other`, a fit to more users than `learned`.

        `share` is the fraction of users that `learned` was learned from: errors fall with its root.
        States are put in the order of `other`.
        """
        scale = float(np.sqrt(share))
        if self.weights is None:
            order = align(learned.rewards(), other.rewards(), other.counts.astype(np.float64))
        else:
            order = align(
                learned.model.weights, other.model.weights, np.ones(self.weights.shape[2])
            )
        weights = None if self.weights is None else self.weights[:, order]
        return Disagreement(self.rewards[:, order], self.shares[:, order], weights).scaled(scale)

    def scaled(self, factor: float) -> Disagreement:
        """Return the differences times `factor`."""
        weights = None if self.weights is None else factor * self.weights
        return Disagreement(factor * self.rewards, factor * self.shares, weights)

    def in_features(self, learned: Learned) -> FloatArray:
        """Return the covariance of a linear model's mean weights over fits, `(n_states, d, d)`.

        Completion determines weights and features only up to an invertible map. So differences of
        mean rewards D are mapped back to weights, by a regression whose prior is C, the covariance
        of the state's users: w = (X'NX / s^2 + C^-1)^-1 X'N D / s^2, with X the features, N the
        counts and s the noise. In directions in which the features express nothing, w is zero. The
        error of a state's mean is at most the spread of its users: the covariance of w is bounded
        by C. Coefficients that are known under C stay known.
        """
        assert learned.features is not None
        model = learned.model
        seen = ~np.isnan(self.rewards).any(axis=1) * learned.counts  # (n_fits, n_actions)
        differences = np.nan_to_num(self.rewards)
        added: FloatArray = np.zeros_like(model.covariances)
        for s, covariance in enumerate(model.covariances):
            varying = np.flatnonzero(np.diag(covariance) > 0)
            if not len(varying):
                continue
            # In the coordinates in which C is the identity.
            root = np.linalg.cholesky(covariance[np.ix_(varying, varying)])
            x = learned.features[:, varying] @ root
            gram = np.einsum("ba,ai,aj->bij", seen, x, x, optimize=True)
            gram += model.noise**2 * np.eye(len(varying))
            target = (seen * differences[:, s]) @ x
            moved = np.linalg.solve(gram, target[..., None])[..., 0]
            values, axes = np.linalg.eigh(moved.T @ moved / len(moved))
            scaled = root @ (axes * np.sqrt(np.minimum(values, 1.0).clip(0.0)))
            added[s][np.ix_(varying, varying)] = scaled @ scaled.T
        return added


def bootstrap(
    learner: Learner,
    log: AnyLog,
    learned: Learned,
    n_fits: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Disagreement:
    """Learn again from `n_fits` resamples of the users, and align every fit with `learned`."""
    bar = Silent() if progress is None else progress
    bar.start("bootstrap", n_fits)
    reference = learned.rewards()
    prior = np.exp(learned.model.log_state_prior[0])
    weights = learned.counts.astype(np.float64)
    rewards, shares, moved = [], [], []
    for again in learner.replicates(log, learned, n_fits, seed):
        order = align(again.rewards, reference, weights)
        if again.moved is not None:
            order = np.arange(len(reference))
            moved.append(again.moved)
        difference = again.rewards[order] - reference
        difference[:, again.counts == 0] = np.nan
        rewards.append(difference)
        shares.append(again.shares[order] - prior)
        bar.advance(1)
    return Disagreement(np.array(rewards), np.array(shares), np.array(moved) if moved else None)


def widened(
    learner: Learner, learned: Learned, disagreement: Disagreement, log: LogSummary
) -> tuple[Learned, dict[str, float]]:
    """Widen a model by the bootstrap, by as much as logged rewards allow, and report on it.

    For every action, the predictive standard deviation of a new user's reward must stay within
    `LARGEST_RATIO` times the standard deviation of its logged rewards, or within its value before
    widening if that is larger (models share one noise between actions). Differences between fits
    are scaled down until it does. The report has the scale, and the largest ratio before and after
    widening.
    """
    logged = logged_variance(log)
    before = predictive_variance(learned)
    limit = LARGEST_RATIO**2 * np.maximum(logged, before)
    scale, wide = 0.0, learned
    for factor in _SCALES:
        candidate = learner.widened(learned, disagreement.scaled(factor))
        if (predictive_variance(candidate) <= limit).all():
            scale, wide = factor, candidate
            break
    varied = logged > 0
    ratios = [
        float(np.sqrt((variance[varied] / logged[varied]).max(initial=0.0)))
        for variance in (before, predictive_variance(wide))
    ]
    return wide, {"scale": scale, "ratio_before": ratios[0], "ratio_after": ratios[1]}


def mean_variance(learned: Learned) -> FloatArray:
    """Return the prior variance of a new user's mean reward for every action, `(n_actions,)`.

    The state is drawn from its prior, and the parameters given the state.
    """
    model = learned.model
    context = None if learned.features is None else learned.features[None]
    mean, variance = (part[0] for part in model.posterior_rewards(model.parameters(1), context))
    prior = np.exp(model.log_state_prior[0])
    total: FloatArray = prior @ (variance + (mean - prior @ mean) ** 2)
    return total


def predictive_variance(learned: Learned) -> FloatArray:
    """Return the variance of a new user's reward for every action, `(n_actions,)`.

    Models of Gaussian rewards add their noise to the variance of the mean. In other families the
    noise depends on the mean, and is left out.
    """
    model, total = learned.model, mean_variance(learned)
    return total + model.noise**2 if with_defaults(model).has_normal_noise else total


def excess_spread(learned: Learned, log: LogSummary, action_ids: Sequence[str]) -> str:
    """Say whether new users' rewards vary more by the model than in the log; empty if not.

    The predictive standard deviation may be `LARGEST_RATIO` times the deviation of logged rewards,
    over all rewards and for every action. Actions share the noise of a model, so the part without
    noise is compared for each action.
    """
    logged = logged_variance(log)
    seen = (log.action_counts > 0) & (logged > 0)
    if not seen.any():
        return ""
    limit = LARGEST_RATIO**2
    ratio = np.where(seen, mean_variance(learned) / np.where(seen, logged, 1.0), 0.0)
    worst = int(ratio.argmax())
    if ratio[worst] > limit:
        return (
            f"the model expects rewards for {action_ids[worst]} to differ between users "
            f"{np.sqrt(ratio[worst]):.3g} times as much as those in the log do"
        )
    pooled = float(log.rewards.deviation**2)
    whole = float(np.average(predictive_variance(learned), weights=log.action_counts))
    if whole > limit * pooled:
        return (
            f"the model expects rewards to vary {np.sqrt(whole / pooled):.3g} times as much as "
            "those in the log do"
        )
    return ""


def logged_variance(log: LogSummary) -> FloatArray:
    """Return the variance of every action's logged rewards; of all rewards if it has few."""
    counts = np.maximum(log.action_counts, 1)
    variance = log.action_squares / counts - (log.action_sums / counts) ** 2
    few = log.action_counts < _FEW_REWARDS
    pooled: FloatArray = np.where(few, log.rewards.deviation**2, np.maximum(variance, 0.0))
    return pooled


def prior_errors(
    learned: Learned, among: BoolArray, *, n_draws: int = 400, seed: int = 0
) -> FloatArray:
    """Return the largest error over states and actions of draws from the prior, `(n_draws,)`.

    `among` marks the actions. The 1 - delta quantile of these errors is epsilon under the model's
    own prior.
    """
    rng = np.random.default_rng(seed)
    model = learned.model
    means = learned.rewards()[:, among]
    features = None if learned.features is None else learned.features[None, among]
    parameters = model.parameters(1)
    errors = np.zeros(n_draws)
    for s in range(model.n_states):
        for start in range(0, n_draws, 50):  # blocks bound the memory for large catalogues
            n = min(50, n_draws - start)
            state = np.full((1, n), s)
            draws = model.sample_rewards(parameters, features, state, rng)[0]
            columns = draws[:, among] if features is None else draws
            largest = np.abs(columns - means[s]).max(axis=1)
            errors[start : start + n] = np.maximum(errors[start : start + n], largest)
    return errors
