"""Learning from transformed rewards: log1p or sqrt of them, for heavy tails.

The learner receives f(r). The learned model is wrapped (`models/composed/transformed.py`); the
wrapped model takes and predicts original rewards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from latentbandits.learning.backends.backend import AnyLog, Engine, engine_of, summary_of
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.selection import (
    Candidate,
    Learned,
    Learner,
    Replicate,
    Selection,
    judge,
)
from latentbandits.learning.uncertainty import Disagreement
from latentbandits.models.checks import FloatArray
from latentbandits.models.composed.transformed import (
    Log1pRewards,
    SqrtRewards,
    TransformedRewards,
)
from latentbandits.report.report import Progress

Transform = Literal["log1p", "sqrt"]

TRANSFORMS: Mapping[Transform, type[TransformedRewards]] = {
    "log1p": Log1pRewards,
    "sqrt": SqrtRewards,
}

_POOLED = 20.0  # prior weight, in rewards, of the overall smearing in an action's


def transformed(transform: Transform, log: Log) -> Log:
    """Return the log with f(r) in place of r."""
    return replace(log, rewards=TRANSFORMS[transform].forward(np.asarray(log.rewards)))


@dataclass(frozen=True)
class Transformed:
    """A transform of every partition of a log: f(r) in place of r."""

    transform: Transform

    def __call__(self, log: Log) -> Log:
        return transformed(self.transform, log)


@dataclass(frozen=True, eq=False)
class TransformedLearner:
    """A learner of f(r): it takes logs of original rewards and returns models of them."""

    learner: Learner
    transform: Transform

    def select(
        self,
        kept: AnyLog,
        held_out: Log,
        states: Sequence[int] | None,
        seed: int,
        progress: Progress,
    ) -> Selection:
        """Choose on f(r); evidence and errors of the candidates are those of f(r)."""
        selection = self.learner.select(
            self._mapped(kept),
            transformed(self.transform, held_out),
            states,
            seed,
            progress,
        )
        learned = self._wrapped(selection.learned, kept)
        settled = replace(self, learner=selection.learner)
        return replace(selection, learner=settled, learned=learned, judged=judge(learned, held_out))

    def choose(self, rows: Sequence[Candidate]) -> Candidate:
        return self.learner.choose(rows)

    def learn(self, log: AnyLog, chosen: Candidate, seed: int) -> Learned:
        return self._wrapped(self.learner.learn(self._mapped(log), chosen, seed), log)

    def replicates(
        self, log: AnyLog, learned: Learned, n_fits: int, seed: int
    ) -> Iterator[Replicate]:
        inner = learned.fitted
        assert isinstance(inner, Learned)
        c = learned.model.smearing
        for again in self.learner.replicates(self._mapped(log), inner, n_fits, seed):
            yield again._replace(rewards=learned.model.mean(again.rewards, c))

    def widened(self, learned: Learned, disagreement: Disagreement) -> Learned:
        """Widen the inner model by the replicates' differences, in units of f(r)."""
        inner = learned.fitted
        assert isinstance(inner, Learned)
        model = learned.model
        reference = learned.rewards()
        level = model.level_of(reference, model.smearing)
        moved = model.level_of(reference + disagreement.rewards, model.smearing) - level
        wide = self.learner.widened(inner, Disagreement(moved, disagreement.shares))
        kind = TRANSFORMS[self.transform]
        wrapped = kind(wide.model, model.smearing, model.level)
        return replace(learned, model=wrapped, fitted=wide)

    def settings(self) -> dict[str, Any]:
        return self.learner.settings() | {"transform": self.transform}

    def _mapped(self, log: AnyLog) -> Engine:
        return engine_of(log).mapped(Transformed(self.transform))

    def _wrapped(self, inner: Learned, log: AnyLog) -> Learned:
        kind = TRANSFORMS[self.transform]
        level = self._mapped(log).summary.rewards.mean
        c = smearing(kind, inner, log)
        return replace(inner, model=kind(inner.model, c, level), fitted=inner)


def smearing(kind: type[TransformedRewards], inner: Learned, log: AnyLog) -> FloatArray:
    """Return c for which the model's average reward equals the log's average (Duan 1983).

    For arms there is one c for each action, pooled with the c of all rewards; for features one.
    """
    summary = summary_of(log)
    counts, sums = summary.action_counts.astype(np.float64), summary.action_sums
    features = None if inner.features is None else inner.features[None]
    model = inner.model
    mean, variance = (part[0] for part in model.posterior_rewards(model.parameters(1), features))
    neutral = 1.0 if kind is Log1pRewards else 0.0
    unsmeared = kind.moments(mean, variance, neutral)[0]
    average = np.exp(model.log_state_prior[0]) @ unsmeared  # (n_actions,)
    seen = counts > 0
    overall_mean = np.asarray(sums.sum() / counts.sum())
    overall = kind.smearing_of(overall_mean, np.average(average[seen], weights=counts[seen]))
    if inner.features is not None:
        return overall
    factors = kind.smearing_of(sums / np.maximum(counts, 1.0), average)
    return (counts * factors + _POOLED * overall) / (counts + _POOLED)
