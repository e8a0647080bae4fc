"""One problem: its optimum, and the Bayes regret of every policy, exact or simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latentbandits.environments.from_model import UsersOfModel
from latentbandits.experiments.yardstick.dynamic import Programme
from latentbandits.experiments.yardstick.problems import Problem
from latentbandits.policies.registry import AUTO, Inputs, build, entries
from latentbandits.report.estimate import Estimate
from latentbandits.simulation import simulate, tune

QUANTILES = ("mBayesUCB(quantile=0.95)", "mmBayesUCB(quantile=0.95)")
_TUNE_EFFORT = 0.3


@dataclass(frozen=True)
class Measured:
    """Regrets of one problem; exact regrets have a standard error of zero."""

    problem: Problem
    optimum: float
    regrets: Mapping[str, Estimate]
    chosen: str  # the policy that `auto` chose

    def ratio(self, policy: str) -> float:
        return self.regrets[policy].mean / self.optimum


def policies(problem: Problem) -> list[str]:
    """Return the texts of all registered policies that the problem's model can build."""
    inputs = _inputs(problem)
    texts = [entry.name for entry in entries("session") if not entry.missing(inputs)]
    return [text for text in (*texts, *QUANTILES) if _can_build(text, inputs)]


def _inputs(problem: Problem) -> Inputs:
    return Inputs(model=problem.model, reward_range=(0.0, 1.0), horizon=problem.horizon)


def _can_build(text: str, inputs: Inputs) -> bool:
    try:
        build(text, inputs)
    except ValueError:
        return False
    return True


def measure(problem: Problem, chosen: Sequence[str], runs: int, seed: int) -> Measured:
    """Return the regrets of the chosen policies; the regret of `auto` is that of tune's winner."""
    programme = Programme(problem)
    texts = [text for text in policies(problem) if text in chosen]
    winner = ""
    if AUTO in chosen:
        winner = tune(problem.model, problem.horizon, seed=seed, effort=_TUNE_EFFORT).winner
        texts = list(dict.fromkeys([*texts, winner]))
    inputs = _inputs(problem)
    built = {text: build(text, inputs) for text in texts}
    regrets: dict[str, Estimate] = {}
    for text, policy in built.items():
        exact = programme.regret(policy)
        if exact is not None:
            regrets[text] = Estimate(exact, 0.0)
    simulated = {text: policy for text, policy in built.items() if text not in regrets}
    if simulated:
        users = UsersOfModel(problem.model)
        results = simulate(simulated, users, n_runs=runs, horizon=problem.horizon, seed=seed)
        regrets |= {text: results[text].regret for text in simulated}
    if winner:
        regrets[AUTO] = regrets[winner]
    return Measured(problem, programme.optimal_regret, regrets, winner)
