"""What a contestant may learn from: the train users, and models that were learned from them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from latentbandits.learning import Fit, Log, fit, save_fit
from latentbandits.learning.assess.comparisons import factorise
from latentbandits.learning.assess.replay import action_averages
from latentbandits.learning.backends.backend import engine_of
from latentbandits.learning.learners import Learned
from latentbandits.models.artefacts import load_files, notes_of, read_files
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.policies.registry import Inputs

FIT, ONE_STATE, STATES, FACTORS = "fit", "one-state", "states", "factors"
MODELS: Mapping[str, str] = {
    FIT: "the model that `fit` recommends",
    ONE_STATE: "the same with one state and its learned prior",
    STATES: "the same with the best number of states above one",
    FACTORS: "a matrix factorisation with biases, into which users are folded",
}
"""The models of a problem, which a policy's text can name: `one-state/mmTS`."""


@dataclass(frozen=True, eq=False)
class Training:
    """The train users of a problem, and the models learned from them, each learned once.

    Args:
        log: the train users; actions without a row there are not offered to anybody.
        horizon: rounds of a session.
        seed: random seed.
        quick: whether fits are quick ones.
    """

    log: Log
    horizon: int
    seed: int
    quick: bool = False

    @property
    def n_actions(self) -> int:
        return self.log.n_actions

    @cached_property
    def counts(self) -> IntArray:
        """The rows of every action, `(n_actions,)`."""
        counts: IntArray = np.bincount(self.log.actions, minlength=self.n_actions)
        return counts

    @cached_property
    def averages(self) -> FloatArray:
        """The average reward of every action, shrunk towards the average of all."""
        return action_averages(self.log)

    @cached_property
    def fitted(self) -> Fit:
        """The result of `fit` with its defaults."""
        return fit(self.log, seed=self.seed, quick=self.quick)

    @cached_property
    def _saved(self) -> tuple[Learned, str]:
        """The saved and loaded model, and the policy that it recommends."""
        with tempfile.TemporaryDirectory() as folder:
            save_fit(self.fitted, Path(folder, "model"))
            files = read_files(Path(folder, "model"))
        model, catalogue = load_files(files, "the model")
        assert catalogue is not None
        if catalogue.ids != self.log.action_ids:
            raise ValueError("the model's actions are not those of the log, in their order")
        learned = Learned(model, catalogue.features, self.counts)
        return learned, notes_of(files, folder)["recommended_policy"]

    @property
    def recommended(self) -> str:
        """The policy that the saved model recommends."""
        return self._saved[1]

    def model(self, name: str) -> Learned:
        """Return one of `MODELS`."""
        if name == FACTORS:
            return self._factors
        if name == FIT:
            return self._saved[0]
        several = name == STATES
        if several == (self._saved[0].model.n_states > 1):
            return self._saved[0]
        model, features = self._other.model, self._other.catalogue.features
        return Learned(model, features, self.counts)

    @cached_property
    def _other(self) -> Fit:
        """The model with one state if `fit` chose several, and with several if it chose one."""
        report = self.fitted.report
        settings, n_states = report["settings"], 1
        if self._saved[0].model.n_states == 1:
            rows = [row for row in report["selection"]
                    if row["kept_states"] > 1 and row["evidence"] is not None]  # fmt: skip
            best = max(rows, key=lambda row: row["evidence"], default={"states": 2})
            n_states = best["states"]
        changes: dict[str, Any] = {"kind": settings["kind"], "states": n_states}
        if settings["kind"] == "arms":
            changes["rewards"] = settings["rewards"]
        else:
            changes["rank"] = settings["rank"]
        return fit(self.log, seed=self.seed, assess=False, quick=self.quick, **changes)

    @cached_property
    def evidence(self) -> dict[str, Any] | None:
        """The held-out evidence per user of several states against one, from the fit's report.

        It is computed before anything is served: from train users that the compared models were
        not learned from.
        """
        mine: dict[str, Any] | None = self.fitted.report["one_state"]
        return self._other.report["one_state"] if mine is None else mine

    @cached_property
    def _factors(self) -> Learned:
        learned = factorise(engine_of(self.log), self.seed)
        if learned is None:
            raise ValueError("there are too few users for a factorisation")
        return learned

    def inputs(self, learned: Learned | None) -> Inputs:
        """Return what policies are built from; without a model, the number of actions."""
        rewards = self.log.rewards
        span = (float(rewards.min()), float(rewards.max()))
        known: dict[str, Any] = {"reward_range": span, "horizon": self.horizon}
        if learned is None:
            return Inputs(n_actions=self.n_actions, noise=float(rewards.std()), **known)
        averages = action_averages(self.log) if learned.features is None else None
        return Inputs(learned.model, items=learned.features, averages=averages, **known)
