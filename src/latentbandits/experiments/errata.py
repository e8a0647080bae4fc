"""The errors in the paper's appendix, and what they cost: `latentbandits reproduce errata`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from latentbandits.beliefs import joint
from latentbandits.experiments import experiment as frame
from latentbandits.experiments.experiment import Order
from latentbandits.experiments.movielens import SETTING as MOVIELENS
from latentbandits.experiments.movielens import first_split
from latentbandits.experiments.movielens_data import given_folder
from latentbandits.experiments.synthetic import BAD, HORIZON, RUNS, SETTINGS
from latentbandits.models.arms.gaussian import GaussianArms
from latentbandits.models.checks import FloatArray, IntArray, session_count
from latentbandits.models.linear.gaussian import LinearGaussian
from latentbandits.models.numerics.arrays import log_normal_density
from latentbandits.options import Option, positive
from latentbandits.policies import TS, decision, mmTS
from latentbandits.policies.checked import Asked, Choice, Outcome, PosteriorPolicy
from latentbandits.policies.decision import check_state
from latentbandits.report.report import Report, Table
from latentbandits.simulation import Results
from latentbandits.simulation.simulate import PolicyMaker


class PrintedBelief(NamedTuple):
    """The counts N_t(a, s) and sums S_t(a, s) of each state, as Algorithm 4 prints them."""

    log_weights: FloatArray  # (n_sessions, n_states)
    counts: FloatArray  # (n_sessions, n_states, n_actions)
    sums: FloatArray  # (n_sessions, n_states, n_actions)


@dataclass(frozen=True, eq=False)
class PrintedThompson(PosteriorPolicy[PrintedBelief]):
    """Algorithm 4 with each of its errors on or off; all off gives the exact mmTS.

    Erratum E1 is the indicator 1{B_l = s}: in the marginal of s (`marginal_indicator`) and in
    the parameters (`parameter_indicator`). Erratum E2 is the product of prior predictives
    (`prior_predictive`) where rewards of one action share their theta.
    """

    model: GaussianArms
    marginal_indicator: bool = True
    parameter_indicator: bool = True
    prior_predictive: bool = True

    def init(self, n_sessions: int = 1) -> PrintedBelief:
        model = self.model
        n = session_count(n_sessions, model.n_sessions)
        shape = (n, model.n_states, model.n_actions)
        weights = np.broadcast_to(model.log_state_prior, shape[:2])
        return PrintedBelief(weights, np.zeros(shape), np.zeros(shape))

    def _choose(self, belief: PrintedBelief, asked: Asked, propensity: bool) -> Choice:
        state = joint.sample(belief.log_weights, asked.rng)
        mean, variance = self._posterior(belief)
        session = np.arange(len(state))
        draws = asked.rng.standard_normal(mean[session, state].shape)
        rewards = mean[session, state] + draws * np.sqrt(variance[session, state])
        return Choice(decision.pick_best(rewards, asked.eligible, asked.rng), state, None, "none")

    def _learn(self, belief: PrintedBelief, outcome: Outcome) -> PrintedBelief:
        believed = np.eye(self.model.n_states)[check_state(outcome.decision, self.model.n_states)]
        session = np.arange(len(outcome.action))
        if self.prior_predictive:
            mean, variance = self._prior()
        else:
            mean, variance = self._posterior(belief)
        log_predictive = log_normal_density(
            outcome.reward[:, None] - mean[session, :, outcome.action],
            variance[session, :, outcome.action] + self.model.noise**2,
        )
        counted = believed if self.parameter_indicator else np.ones_like(believed)
        counts, sums = belief.counts.copy(), belief.sums.copy()
        counts[session, :, outcome.action] += counted
        sums[session, :, outcome.action] += counted * outcome.reward[:, None]
        weighed = believed if self.marginal_indicator else 1.0
        return PrintedBelief(belief.log_weights + weighed * log_predictive, counts, sums)

    def _prior(self) -> tuple[FloatArray, FloatArray]:
        return self.model.means, self.model.spread**2

    def _posterior(self, belief: PrintedBelief) -> tuple[FloatArray, FloatArray]:
        """Return K and M of Algorithm 4, as printed."""
        mean, variance = self._prior()
        noise = self.model.noise**2
        posterior_variance = 1 / (1 / variance + belief.counts / noise)
        posterior_mean = posterior_variance * (mean / variance + belief.sums / noise)
        return posterior_mean, posterior_variance


# Linear mmTS as printed in the paper's appendix (Algorithm 5); for comparison, not for use.


class PrintedLinearBelief(NamedTuple):
    """Sums over the rounds that count for each state, as in Algorithm 5."""

    log_weights: FloatArray  # (n_sessions, n_states)
    counts: FloatArray  # (n_sessions, n_states): N
    grams: FloatArray  # (n_sessions, n_states, d, d): sum of x x'
    moments: FloatArray  # (n_sessions, n_states, d): F, sum of x r


@dataclass(frozen=True, eq=False)
class PrintedLinearThompson(PosteriorPolicy[PrintedLinearBelief]):
    """Algorithm 5 with each of its errors on or off; all off gives the exact mmTS.

    E1 (`indicator`): only rounds in which s was sampled count for s. E2 (`prior_predictive`):
    a product of prior predictives. E3 (`inverse`): their variance is x' Sigma^-1 x + sigma^2.
    E4 (`repeated`): the precision is Sigma^-1 + N (I + sum x x') / sigma^2.
    """

    model: LinearGaussian
    indicator: bool = True
    prior_predictive: bool = True
    inverse: bool = True
    repeated: bool = True

    def init(self, n_sessions: int = 1) -> PrintedLinearBelief:
        n, s, d = session_count(n_sessions, None), self.model.n_states, self.model.n_features
        weights = np.broadcast_to(self.model.log_state_prior, (n, s))
        return PrintedLinearBelief(
            weights, np.zeros((n, s)), np.zeros((n, s, d, d)), np.zeros((n, s, d))
        )

    def _choose(self, belief: PrintedLinearBelief, asked: Asked, propensity: bool) -> Choice:
        assert asked.context is not None
        state = joint.sample(belief.log_weights, asked.rng)
        chosen = np.arange(len(state)), state
        precision, mean = self._posterior(belief, chosen)
        noise = asked.rng.standard_normal((len(state), self.model.n_features, 1))
        root = np.linalg.cholesky(precision).swapaxes(1, 2)
        theta = mean[..., None] + np.linalg.solve(root, noise)
        rewards = (asked.context @ theta)[..., 0]
        return Choice(decision.pick_best(rewards, asked.eligible, asked.rng), state, None, "none")

    def _posterior(
        self, belief: PrintedLinearBelief, chosen: tuple[IntArray, IntArray]
    ) -> tuple[FloatArray, FloatArray]:
        """Return K^-1 and M of the states in `chosen` (session, state)."""
        _, state = chosen
        precision = np.asarray(np.linalg.inv(self.model.covariances), np.float64)[state]
        target = (precision @ self.model.weights[state][..., None])[..., 0]
        gram, moment = belief.grams[chosen], belief.moments[chosen]
        if self.repeated:
            times = belief.counts[chosen]
            gram = times[:, None, None] * (gram + np.eye(self.model.n_features))
            moment = times[:, None] * moment
        precision = precision + gram / self.model.noise**2
        target = target + moment / self.model.noise**2
        mean = np.linalg.solve(precision, target[..., None])[..., 0]
        return precision, np.asarray(mean, np.float64)

    def _learn(self, belief: PrintedLinearBelief, outcome: Outcome) -> PrintedLinearBelief:
        assert outcome.context is not None
        n_states = self.model.n_states
        believed = np.eye(n_states)[check_state(outcome.decision, n_states)]
        x = outcome.context[np.arange(len(outcome.action)), outcome.action]
        counted = believed if self.indicator else np.ones_like(believed)
        log_predictive = np.stack(
            [self._log_predictive(belief, s, x, outcome.reward) for s in range(n_states)], axis=1
        )
        outer = x[:, :, None] * x[:, None, :]
        return PrintedLinearBelief(
            belief.log_weights + counted * log_predictive,
            belief.counts + counted,
            belief.grams + counted[..., None, None] * outer[:, None],
            belief.moments + counted[..., None] * (x * outcome.reward[:, None])[:, None],
        )

    def _log_predictive(
        self, belief: PrintedLinearBelief, s: int, x: FloatArray, reward: FloatArray
    ) -> FloatArray:
        n = len(x)
        if self.prior_predictive:
            covariance = np.broadcast_to(self.model.covariances[s], (n, *x.shape[1:], x.shape[1]))
            mean = np.broadcast_to(self.model.weights[s], x.shape)
        else:
            precision, mean = self._posterior(belief, (np.arange(n), np.full(n, s)))
            covariance = np.linalg.inv(precision)
        if self.inverse:
            covariance = np.linalg.inv(covariance)
        variance = np.einsum("nd,nde,ne->n", x, covariance, x) + self.model.noise**2
        return log_normal_density(reward - np.einsum("nd,nd->n", x, mean), variance)


# The cost of the errors in the paper's appendix: `latentbandits reproduce errata`.

# The compared variants of mmTS: each error of the appendix alone, and all of them.

EXACT, PRINTED, NO_MODEL = "mmTS, exact", "as printed", "TS, no model"
E1, E2 = "E1 only", "E2 only"
E2_WITH_INDICATOR = "E2, and the indicator in the parameters"

ARMS: frame.Policies = {
    EXACT: mmTS,
    PRINTED: PrintedThompson,
    E1: partial(PrintedThompson, prior_predictive=False),
    E2_WITH_INDICATOR: partial(PrintedThompson, marginal_indicator=False),
    E2: partial(PrintedThompson, marginal_indicator=False, parameter_indicator=False),
    NO_MODEL: TS(10, 0.5, prior_mean=0.5, prior_spread=(1 / 12) ** 0.5),
}


def _only(erratum: int) -> PolicyMaker:
    """Return Algorithm 5 with one of its errors, E1 to E4, and without the others."""
    return partial(
        PrintedLinearThompson,
        indicator=erratum == 1,
        prior_predictive=erratum == 2,
        inverse=erratum == 3,
        repeated=erratum == 4,
    )


LINEAR: frame.Policies = {
    EXACT: mmTS,
    PRINTED: PrintedLinearThompson,
    **{f"E{erratum} only": _only(erratum) for erratum in (1, 2, 3, 4)},
}

ARMS_CLAIMS: tuple[frame.Checkable, ...] = (
    *(
        Order(f"E1 {environment.model_noise:g}",
              "the indicator makes mmTS worse than having no model",
              setting, "regret", better=(NO_MODEL,), worse=(PRINTED, E1))
        for setting, environment in SETTINGS.items()
    ),
    Order("E2", "prior predictives cost regret while the indicator stays in the parameters",
          BAD, "regret", better=(EXACT,), worse=(E2_WITH_INDICATOR,)),
)  # fmt: skip

LINEAR_CLAIMS: tuple[frame.Checkable, ...] = (
    Order("E1 linear", "with features too, the indicator and all errors together cost reward",
          MOVIELENS, "reward", better=(EXACT,), worse=(PRINTED, E1)),
)  # fmt: skip


# The printed algorithms, and each of their errors alone, compared with the exact algorithm.

USERS = 200


class ErrataExperiment(frame.Experiment):
    """Measure regret on the synthetic problem and, if its data are given, reward on MovieLens."""

    name = "errata"
    help = "mmTS exactly as the paper's appendix prints it, beside the exact one"
    options = (
        Option("runs", "runs", RUNS, positive),
        Option("horizon", "rounds", HORIZON, positive),
        Option("data", "a MovieLens 1M folder: the errata of the linear algorithm too",
               metavar="DIR", recorded=False),
        Option("users", "of MovieLens", USERS, positive),
    )  # fmt: skip

    def check(self, arguments: argparse.Namespace) -> None:
        if arguments.data:
            given_folder(arguments.data)

    def measure(self, work: frame.Work) -> Report:
        options = work.options
        arms = {
            name: work.play(self.name, frame.Setting(name, environment, ARMS))
            for name, environment in SETTINGS.items()
        }
        claims = frame.check_all(ARMS_CLAIMS, arms)
        title = f"Algorithm 4 as printed, synthetic problem: regret, {options.runs} runs"
        tables = [frame.metric_table(title, arms, "regret")]
        linear: dict[str, Results] = {}
        if options.data:
            movielens = frame.Setting(MOVIELENS, first_split(options.data, options.seed), LINEAR)
            linear = {MOVIELENS: work.play(self.name, movielens, n_runs=options.users)}
            claims += frame.check_all(LINEAR_CLAIMS, linear)
            tables.append(_linear_table(linear[MOVIELENS], options.users))
        return Report(
            settings={"users": options.users if options.data else 0},
            policies=frame.policy_rows(arms | linear),
            claims=claims,
            tables=tables,
        )


def _linear_table(results: Results, users: int) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            name,
            str(results[name].reward),
            "" if name == EXACT else str(results.difference(name, EXACT, "reward")),
        )
        for name in LINEAR
    ]
    columns = ("variant", "mean rating", "difference from exact (paired)")
    return Table(f"Algorithm 5 as printed, MovieLens 1M, {users} users", columns, rows)
