"""The learner of `fit --features`: a mixture of regressions on features of each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning.attributes.regression import (
    Mixture,
    fit_bootstraps,
    fit_mixture,
    regressions,
)
from latentbandits.learning.backends.backend import AnyLog, summary_of
from latentbandits.learning.backends.memory import engine_of
from latentbandits.learning.learners import Learned, Replicate
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.selection import Candidate, Selection, fewest_states, judge
from latentbandits.learning.uncertainty import Disagreement
from latentbandits.models.attributes.columns import Encoder
from latentbandits.models.attributes.parts import with_parts
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.report.report import Progress

STATES = (1, 2, 3, 4, 5, 6, 8)
"""Numbers of states that `auto` tries."""

_PATIENCE = 2  # numbers of states that are tried beyond the best


class ActionRows(NamedTuple):
    """Sums of the features of each action's rows."""

    counts: IntArray  # (n_actions,)
    features: FloatArray  # (n_actions, n_features)


@dataclass(frozen=True)
class SumActionRows:
    """A pass that sums the features of the rows of every action."""

    n_actions: int

    def summarise(self, log: Log, parameters: None) -> ActionRows:
        assert log.features is not None
        counts = np.bincount(log.actions, minlength=self.n_actions)
        sums = np.zeros((self.n_actions, log.features.shape[1]))
        np.add.at(sums, log.actions, log.features)
        return ActionRows(counts, sums)


@dataclass(frozen=True)
class RowLearner:
    """A mixture over users of regressions on the rows' features (`regression.py`)."""

    encoder: Encoder
    is_clicks: bool = False

    def select(
        self,
        kept: AnyLog,
        held_out: Log,
        states: Sequence[int] | None,
        seed: int,
        progress: Progress,
    ) -> Selection:
        """Choose the fewest states within one standard error of the best held-out evidence."""
        wanted = STATES if states is None else tuple(states)
        progress.start("choosing states", len(wanted))
        rows: list[Candidate] = []
        best = -inf
        since = 0
        models: dict[int, Learned] = {}
        for n_states in wanted:
            learned = self._learn(kept, n_states, seed)
            scores = judge(learned, held_out)
            rows.append(Candidate(n_states, None, scores.evidence, scores.rmse, scores.by_user()))
            models[n_states] = learned
            progress.advance(1)
            since = 0 if scores.evidence > best else since + 1
            best = max(best, scores.evidence)
            if since >= _PATIENCE:
                break
        chosen = self.choose(rows)
        learned = models[chosen.n_states]
        return Selection(self, tuple(rows), chosen, learned, judge(learned, held_out))

    def choose(self, rows: Sequence[Candidate]) -> Candidate:
        return fewest_states(rows)

    def learn(self, log: AnyLog, chosen: Candidate, seed: int) -> Learned:
        return self._learn(log, chosen.n_states, seed)

    def _learn(self, log: AnyLog, n_states: int, seed: int) -> Learned:
        engine = engine_of(log)
        scale = self._scale(engine)
        mixture, _ = fit_mixture(engine, n_states, len(self.encoder), scale, self.is_clicks, seed)
        sums = engine.fold(SumActionRows(engine.n_actions), None)
        means = sums.features / np.maximum(sums.counts, 1)[:, None]
        return Learned(self._model(mixture), means, sums.counts, fitted=mixture)

    def _scale(self, log: AnyLog) -> float:
        return 1.0 if self.is_clicks else max(summary_of(log).rewards.deviation, 1e-6)

    def _model(self, mixture: Mixture) -> Any:
        return with_parts(mixture.model(self.is_clicks), encoder=self.encoder)

    def replicates(
        self,
        log: AnyLog,
        learned: Learned,
        chosen: Candidate,
        n_fits: int,
        seed: int,
        progress: Progress,
    ) -> Iterator[Replicate]:
        """Refit to `n_fits` Poisson bootstraps of the users, all in the same passes."""
        engine = engine_of(log)
        mixture = learned.fitted
        assert isinstance(mixture, Mixture)
        learner = regressions(self._scale(engine), self.is_clicks)
        for again in fit_bootstraps(learner, engine, mixture, n_fits, seed):
            progress.advance(1)
            rewards = replace(learned, model=self._model(again)).rewards()
            yield Replicate(rewards, again.shares, learned.counts, again.weights - mixture.weights)

    def widened(self, learned: Learned, disagreement: Disagreement) -> Learned:
        """Add the bootstrap variance of each state's mean weights to the state's covariance.

        The covariance describes users within their state only, not the error of the mean.
        """
        mixture = learned.fitted
        assert isinstance(mixture, Mixture)
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
