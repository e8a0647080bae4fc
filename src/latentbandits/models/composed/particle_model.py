"""Sequential Monte Carlo over parameters, where nothing is conjugate (Section 3.4 of the paper).

Resample-move (Gilks & Berzuini 2001): weighted draws of theta for every state and session. A
reward multiplies their weights by its likelihood; the mean of that is the predictive density, and
the running product of these is an unbiased estimate of the evidence. Where the effective sample
size has fallen to a quarter, particles are resampled and then moved by Metropolis-Hastings steps
that leave the posterior as it is.

For the evidence to be unbiased a move may depend on the data, but not on the particles. So its
length is drawn, per particle, between the scales of the prior and of a posterior after this number
of rounds.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

import latentbandits.models.checks as checks
import latentbandits.models.history as history
from latentbandits.lazy import cached_property
from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics.arrays import Keys, normalise, shares_best, systematic
from latentbandits.models.numerics.laws import Component, Points
from latentbandits.models.protocol import Context, StationaryModel

_PRIOR_SEED = 0x5EED
_RESAMPLE_BELOW = 1 / 4  # resample if the effective sample size is below this share


class ParticlePosterior(NamedTuple):
    """Weighted particles, and the rounds whose likelihood a move computes again."""

    log_weights: FloatArray  # (n_sessions, n_states, n_particles), normalised over particles
    theta: FloatArray  # (n_sessions, n_states, n_particles, n_parameters)
    log_likelihoods: FloatArray  # (n_sessions, n_states, n_particles), of all rounds so far
    features: FloatArray  # (n_sessions, n_rounds, n_features), of the actions played
    rewards: FloatArray  # (n_sessions, n_rounds); NaN: this session had no such round
    keys: Keys  # (n_sessions,)


class TooFewParticles(UserWarning):
    """A warning: the effective sample size is below the number of parameters."""


class ParticleModel(StationaryModel, ABC):
    """Base class of particle models: subclasses define prior, likelihood and mean rewards.

    Sessions start from the same particles, drawn once, so that what a session learns is a
    function of its own history and of `seed` alone.
    """

    order_free = False
    n_particles: int
    n_moves: int
    seed: int

    @abstractmethod
    def _draw_prior(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw theta `n` times for every state, `(n_states, n, n_parameters)`."""

    @abstractmethod
    def _log_prior(self, theta: FloatArray, state: IntArray) -> FloatArray:
        """Return log P1(theta | s), `(k, m)` for `theta` (k, m, n_parameters) and `state` (k,)."""

    @abstractmethod
    def _log_density(
        self, theta: FloatArray, features: FloatArray, reward: FloatArray
    ) -> FloatArray:
        """Return `(n, m, t)` for `theta` (n, m, p), `features` (n, t, d) and `reward` (n, t)."""

    @abstractmethod
    def _mean_rewards(self, theta: FloatArray, features: FloatArray) -> FloatArray:
        """Return the mean reward: `(n, m, k)` for theta (n, m, p) and features (n, k, d)."""

    @property
    @abstractmethod
    def _point(self) -> FloatArray:
        """The theta that the m-policies take as true, `(n_states, n_parameters)`."""

    def _features(self, context: Context, n_sessions: int) -> FloatArray:
        """Return the features of every action, `(n_sessions, n_actions, n_features)`."""
        return checks.required(context)

    def expected_rewards(self, context: Context, state: IntArray | None = None) -> FloatArray:
        if state is not None:
            features = self._features(context, len(state))
            return self._mean_rewards(self._point[state][:, None], features)[:, 0]
        features = self._features(context, 1)
        point = np.broadcast_to(self._point, (len(features), *self._point.shape))
        return self._mean_rewards(point, features)

    def log_likelihood(self, context: Context, action: IntArray, reward: FloatArray) -> FloatArray:
        n = len(action)
        point = np.broadcast_to(self._point, (n, *self._point.shape))
        features = checks.played(self._features(context, n), action)[:, None]
        return self._log_density(point, features, reward[:, None])[:, :, 0]

    def parameters(self, n_sessions: int) -> ParticlePosterior:
        n = checks.session_count(n_sessions, None)
        shape = (n, self.n_states, self.n_particles)
        theta = np.broadcast_to(self._prior_particles, (n, *self._prior_particles.shape))
        weights = np.broadcast_to(-math.log(self.n_particles), shape)
        keys = history.start(n, self.seed)
        return ParticlePosterior(
            weights, theta, np.zeros(shape), np.zeros((n, 0, 0)), np.zeros((n, 0)), keys
        )

    def condition(
        self, parameters: ParticlePosterior, context: Context, action: IntArray, reward: FloatArray
    ) -> tuple[FloatArray, ParticlePosterior]:
        n = len(action)
        x = checks.played(self._features(context, n), action)[:, None]
        flat = parameters.theta.reshape(n, -1, parameters.theta.shape[-1])
        density = self._log_density(flat, x, reward[:, None])[:, :, 0]
        density = density.reshape(parameters.log_weights.shape)
        _check_density(density, reward)
        log_predictive, log_weights = normalise(
            parameters.log_weights + density, parameters.log_weights
        )
        before = parameters.features.reshape(n, -1, x.shape[2])
        updated = ParticlePosterior(
            log_weights,
            parameters.theta,
            parameters.log_likelihoods + density,
            np.concatenate([before, x], axis=1),
            np.concatenate([parameters.rewards, reward[:, None]], axis=1),
            history.advance(parameters.keys, action, reward),
        )
        size = self.effective_sample_size(updated)
        self._warn(size, parameters.theta.shape[-1])
        return log_predictive, self._rejuvenate(updated, size < _RESAMPLE_BELOW * self.n_particles)

    def effective_sample_size(self, parameters: ParticlePosterior) -> FloatArray:
        """Return 1 / sum of squared weights, `(n_sessions, n_states)`."""
        weights = np.exp(parameters.log_weights)
        size: FloatArray = 1 / np.einsum("nsp,nsp->ns", weights, weights)
        return size

    def posterior_rewards(
        self, parameters: ParticlePosterior, context: Context
    ) -> tuple[FloatArray, FloatArray]:
        weights = np.exp(parameters.log_weights)
        features = self._features(context, len(weights))
        means = np.empty((len(weights), self.n_states, features.shape[1]))
        variances = np.empty_like(means)
        for s in range(self.n_states):  # one at a time: memory (n, n_particles, n_actions)
            rewards = self._mean_rewards(parameters.theta[:, s], features)
            share = weights[:, s, None]
            means[:, s] = (share @ rewards)[:, 0]
            variances[:, s] = (share @ (rewards - means[:, s, None]) ** 2)[:, 0]
        return means, variances

    def reward_laws(self, parameters: ParticlePosterior, context: Context) -> tuple[Component, ...]:
        """Return the particles' mean rewards with their weights."""
        values = [
            self._mean_rewards(parameters.theta[:, s], checks.required(context))
            for s in range(self.n_states)
        ]
        return (Component(None, Points(np.stack(values, axis=1), np.exp(parameters.log_weights))),)

    def sample_rewards(
        self,
        parameters: ParticlePosterior,
        context: Context,
        state: IntArray,
        rng: np.random.Generator,
    ) -> FloatArray:
        session = np.arange(len(state))
        chosen = np.empty(state.shape, np.int64)
        for draw, column in enumerate(state.T):
            upper = np.exp(parameters.log_weights[session, column]).cumsum(axis=-1)
            upper /= upper[:, -1:]
            chosen[:, draw] = (rng.random((len(state), 1)) >= upper[:, :-1]).sum(axis=-1)
        theta = parameters.theta[session[:, None], state, chosen]
        return self._mean_rewards(theta, self._features(context, len(state)))

    def point_theta(self, state: IntArray) -> FloatArray:
        """Return the parameters that `log_likelihood` takes for users in `state` (n,)."""
        return self._point[state]

    def draw_theta(self, state: IntArray, rng: np.random.Generator) -> FloatArray:
        n = len(state)
        return self._draw_prior(n, rng)[state, np.arange(n)]

    def mean_rewards(self, theta: FloatArray, context: Context) -> FloatArray:
        return self._mean_rewards(theta[:, None], self._features(context, len(theta)))[:, 0]

    def log_reward_density(
        self, theta: FloatArray, context: Context, action: IntArray, reward: FloatArray
    ) -> FloatArray:
        features = checks.played(self._features(context, len(action)), action)[:, None]
        return self._log_density(theta[:, None], features, reward[:, None])[:, 0, 0]

    def probability_best(
        self,
        parameters: ParticlePosterior,
        context: Context,
        eligible: BoolArray | None,
        weights: FloatArray,
    ) -> FloatArray:
        """Return the weight of the particles under which each action is best."""
        n, s, _ = parameters.log_weights.shape
        features = self._features(context, n)
        chance: FloatArray = np.empty((n, s, features.shape[1]))
        for state in range(s):
            shares = shares_best(self._mean_rewards(parameters.theta[:, state], features), eligible)
            chance[:, state] = (np.exp(parameters.log_weights[:, state])[:, None] @ shares)[:, 0]
        chance /= chance.sum(axis=2, keepdims=True)
        return chance

    def _rejuvenate(
        self, parameters: ParticlePosterior, degenerate: BoolArray
    ) -> ParticlePosterior:
        """Resample and move the particles where `degenerate` (n_sessions, n_states) is true."""
        if not degenerate.any():
            return parameters
        log_weights, theta, likelihoods = (
            array.copy()
            for array in (parameters.log_weights, parameters.theta, parameters.log_likelihoods)
        )
        for i in np.flatnonzero(degenerate.any(axis=1)):
            states = np.flatnonzero(degenerate[i])
            rng = history.generator(parameters.keys[i])
            weights = np.exp(log_weights[i, states])
            told = ~np.isnan(parameters.rewards[i])
            kept = systematic(weights, self.n_particles, rng.random(len(states)))
            rows = states[:, None]
            theta[i, states], likelihoods[i, states] = self._move(
                theta[i, rows, kept],
                likelihoods[i, rows, kept],
                states,
                parameters.features[i, told],
                parameters.rewards[i, told],
                rng,
            )
            log_weights[i, states] = -math.log(self.n_particles)
        return parameters._replace(
            log_weights=log_weights, theta=theta, log_likelihoods=likelihoods
        )

    def _move(
        self,
        theta: FloatArray,
        likelihood: FloatArray,
        state: IntArray,
        features: FloatArray,
        rewards: FloatArray,
        rng: np.random.Generator,
    ) -> tuple[FloatArray, FloatArray]:
        """Make Metropolis-Hastings steps for the particles `(k, m, p)` of one session's states.

        `theta` and `likelihood` are changed in place.
        """
        k, m, p = theta.shape
        log_prior = self._log_prior(theta, state)
        for _ in range(self.n_moves):
            length = len(rewards) ** (-0.5 * rng.random((k, m, 1))) * 2.4 / math.sqrt(p)
            steps = rng.standard_normal((k, m, p)) @ self._prior_factors[state]
            proposal = theta + length * steps
            proposed_prior = self._log_prior(proposal, state)
            flat = proposal.reshape(1, k * m, p)
            densities = self._log_density(flat, features[None], rewards[None])
            proposed = densities.sum(axis=2).reshape(k, m)
            gain = (proposed - likelihood) + (proposed_prior - log_prior)
            accepted = -rng.standard_exponential((k, m)) < gain
            theta[accepted], likelihood[accepted] = proposal[accepted], proposed[accepted]
            log_prior[accepted] = proposed_prior[accepted]
        return theta, likelihood

    def _warn(self, size: FloatArray, n_parameters: int) -> None:
        if size.min() < min(n_parameters, self.n_particles / 2):
            session, state = (int(i) for i in np.argwhere(size == size.min())[0])
            warnings.warn(
                f"session {session}, state {state}: an effective sample size of {size.min():.1f} "
                f"of {self.n_particles} particles is too few for {n_parameters} parameters; "
                f"try n_particles={4 * self.n_particles}",
                TooFewParticles,
                stacklevel=2,
            )

    @cached_property
    def _prior_particles(self) -> FloatArray:
        rng = np.random.default_rng([_PRIOR_SEED, self.seed])
        return checks.frozen(self._draw_prior(self.n_particles, rng))

    @cached_property
    def _prior_factors(self) -> FloatArray:
        """The scale of moves, `(n_states, p, p)`: from draws that no particle comes from."""
        draws = self._draw_prior(4096, np.random.default_rng([_PRIOR_SEED, self.seed, 1]))
        centred = draws - draws.mean(axis=1, keepdims=True)
        covariance = centred.swapaxes(1, 2) @ centred / draws.shape[1]
        values, vectors = np.linalg.eigh(covariance)
        factors: FloatArray = np.sqrt(np.maximum(values, 0.0))[:, :, None] * vectors.swapaxes(1, 2)
        return factors


def _check_density(density: FloatArray, reward: FloatArray) -> None:
    if np.isnan(density.max()) or density.max() == np.inf:
        wrong = np.isnan(density) | (density == np.inf)
        session, state, particle = (int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"log_likelihood returned {density[session, state, particle]} for session {session}, "
            f"state {state}, particle {particle}, reward {reward[session]:g}"
        )
