"""A service that starts without a log: rewards are pooled, then a learned model takes over."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from evidence.loop_users import ClickingUsers
from evidence.loop_visits import play, served, visit
from evidence.reward_logs import generate_family
from latentbandits.client import Client
from latentbandits.experiments.experiment import Experiment, Figures, Work
from latentbandits.learning.fitting import fit
from latentbandits.learning.generate import KnownArms
from latentbandits.loop.kept_log import ServiceSource
from latentbandits.loop.relearn import FIT_OPTIONS, LoopSettings, Relearner
from latentbandits.models.arms.start import save_start
from latentbandits.models.artefacts import Catalogue
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.models.visit import Visit
from latentbandits.options import Option, positive
from latentbandits.policies import TS, HierTS
from latentbandits.policies.registry import build, inputs_of
from latentbandits.report import drawing
from latentbandits.report.report import Claim, Estimate, Report, Table

KINDS, ACTIONS, ROUNDS = 4, 30, 20
SEPARATION = 10.0  # nats between the two closest kinds over a visitor's rounds
FIT: dict[str, Any] = {"kind": "arms", "rewards": "bernoulli"}
PERIODS = 16
QUARTERS = 4
POOLED_RUNS = 10
NARROW_SPREAD, CLICK_NOISE = 0.05, 0.4  # for HierTS; deviation of a click
LOOP, POOLED, ALONE, LOGGED = (
    "the loop", "pooled Thompson sampling", "each visitor alone", "learned from a log"
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Visitors:
    """A population of kinds with click rates, and the kind of each visitor."""

    truth: KnownArms
    kinds: IntArray  # (n_visitors,)

    @classmethod
    def generate(cls, n_visitors: int, seed: int) -> Visitors:
        """Generate the kinds, a log of as many other users, and the visitors."""
        truth = generate_family(
            "bernoulli", n_visitors, ROUNDS, KINDS, ACTIONS, separation=SEPARATION, seed=seed
        )
        rng = np.random.default_rng([seed, 1])
        return cls(truth, rng.choice(KINDS, n_visitors, p=truth.shares))

    @property
    def users(self) -> ClickingUsers:
        return ClickingUsers(self.truth.means, ROUNDS, self.kinds)

    def reward(self, regret: FloatArray) -> FloatArray:
        """Return the expected reward a round of each visitor, given the regret of the session."""
        best = self.truth.means.max(axis=1)[self.kinds[: len(regret)]]
        reward: FloatArray = best - regret / ROUNDS
        return reward


def play_pooled(visitors: Visitors, rng: np.random.Generator) -> FloatArray:
    """Play Thompson sampling on the rewards of all visitors, updated after every reward."""
    ones, zeros = np.ones(ACTIONS), np.ones(ACTIONS)
    rewards = np.zeros(len(visitors.kinds))
    for i, kind in enumerate(visitors.kinds):
        means = visitors.truth.means[kind]
        for _ in range(ROUNDS):
            action = int(rng.beta(ones, zeros).argmax())
            clicked = rng.random() < means[action]
            ones[action] += clicked
            zeros[action] += not clicked
            rewards[i] += means[action] / ROUNDS
    return rewards


def play_hierarchical(visitors: Visitors, spread: float, seed: int) -> FloatArray:
    """Play HierTS, whose users deviate from their mean by `spread`, for the first quarter."""
    kinds = visitors.kinds[: len(visitors.kinds) // QUARTERS]
    rng = np.random.default_rng([seed, 5])
    policy = HierTS(len(kinds), ACTIONS, CLICK_NOISE, spread, hyper_spread=1 / np.sqrt(12))
    belief, features = policy.init(), np.eye(ACTIONS)[None]
    rewards = np.zeros(len(kinds))
    for i, kind in enumerate(kinds):
        means, visit_of = visitors.truth.means[kind], Visit(np.array([i]), features)
        for _ in range(ROUNDS):
            decision = policy.decide(belief, visit_of, rng, propensity=False)
            expected = means[int(decision.action[0])]
            clicked = float(rng.random() < expected)
            belief = policy.update(belief, visit_of, decision, [clicked - 0.5])
            rewards[i] += expected / ROUNDS
    return rewards


class StartExperiment(Experiment):
    """A real service that has no log, with visitors of some kinds."""

    name = "start"
    help = "a service without a log: pooled rewards, then a learned model, against both alone"
    options = (
        Option("visitors", "of the service", 4_000, positive),
        Option("every", "visitors between two runs of relearn, fewer at first", 10, positive),
    )

    def measure(self, work: Work) -> Report:
        """Send the visitors to the service, and to the policies that it is compared with."""
        options = work.options
        visitors = Visitors.generate(options.visitors, options.seed)
        loop, activated, decisions = _loop(visitors, options, work)
        runs = (np.random.default_rng([options.seed, 2, i]) for i in range(POOLED_RUNS))
        pooled = np.stack([play_pooled(visitors, rng) for rng in runs])  # (n_runs, n_visitors)
        rewards = {
            LOOP: loop,
            POOLED: pooled.mean(axis=0),
            ALONE: _play(visitors, TS(n_actions=ACTIONS), options.seed),
            LOGGED: _play(visitors, _learned(visitors), options.seed),
        }
        shared = _shared(visitors, rewards[POOLED], options.seed)
        columns = ("visitors", "decision", "why")
        trials = Table("Trials of learned models, and how they ended", columns, decisions)
        return Report(
            settings={
                "activated": activated,
                "curves": {name: _means(one, PERIODS) for name, one in rewards.items()},
            },
            policies=[
                {"policy": name, "setting": f"quarter {q + 1}", **part.row("reward")}
                for name, one in rewards.items()
                for q, part in enumerate(_means(one, QUARTERS))
            ],
            claims=_claims(rewards, pooled, activated),
            tables=[_table(rewards), shared, trials],
        )  # fmt: skip

    def draw(self, results: Mapping[str, Any]) -> Figures:
        """Draw the reward over time."""
        settings = results["settings"]
        figure = drawing.new_figure(3.4, "A service that starts without a log", drawing.NARROW)
        axes = figure.subplots()
        width = settings["visitors"] / PERIODS
        middles = [width * (i + 0.5) for i in range(PERIODS)]
        colours = {LOOP: drawing.ORANGE, POOLED: drawing.BLUE, ALONE: drawing.GREY,
                   LOGGED: drawing.GREEN}  # fmt: skip
        for name, points in settings["curves"].items():
            estimates = [Estimate(*point) for point in points]
            drawing.draw_line(axes, middles, estimates, "-", colours[name], name)
        for seen in settings["activated"]:
            axes.axvline(seen, color=drawing.ORANGE, lw=1.2, ls="--")
        drawing.plain(axes, x="visitors", y="expected reward a round")
        drawing.label_lines(axes)
        return {"start": figure}


def _loop(
    visitors: Visitors, options: argparse.Namespace, work: Work
) -> tuple[FloatArray, list[int], list[tuple[str, ...]]]:
    """Return each visitor's reward, the visitors before each new model, and the tries."""
    kinds, users = visitors.kinds, visitors.users
    rng = np.random.default_rng([options.seed, 3])
    work.progress.start("visitors over HTTP", len(kinds))
    regrets: list[FloatArray] = []
    activated: list[int] = []
    tries: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(prefix="latentbandits-start-") as scratch:
        folder = Path(scratch)
        models = folder / "models"
        save_start(models / "start", Catalogue([str(a) for a in range(ACTIONS)]), "clicks")
        with (
            served(models / "start", folder, "--models", str(models)) as url,
            Client(url, timeout=60.0) as client,
        ):
            arms = replace(FIT_OPTIONS, **FIT)
            settings = LoopSettings(work=folder / "work", models=models, fit_options=arms)
            seen = 0
            while seen < len(kinds):
                # A run after as many visitors as are a tenth of those before: pooling waits for so
                # many more rewards.
                some = kinds[seen : seen + min(options.every, max(1, seen // 10))]
                come = map(int, some)
                regrets.append(visit(client, f"v{seen}", users, come, len(some), rng))
                seen += len(some)
                run = Relearner(settings, client, ServiceSource(client)).run()
                if run.decision == "activate" and run.outcome == "done":
                    activated.append(seen)
                if run.decision in ("activate", "try") or (run.groups and run.decision == "pool"):
                    tries.append((str(seen), f"{run.decision} ({run.outcome})", run.why))
                if run.outcome == "failed":
                    raise ValueError(f"relearn after {seen} visitors: {run.why}")
                work.progress.advance(len(some))
    return visitors.reward(np.concatenate(regrets)), activated, tries


def _learned(visitors: Visitors) -> Any:
    """Return the recommended policy of a model that is learned from as many logged users."""
    result = fit(visitors.truth.log, bootstrap=0, **FIT)
    return build(
        result.report["judgement"]["recommended_policy"], inputs_of(result.model, result.catalogue)
    )


def _play(visitors: Visitors, policy: Any, seed: int) -> FloatArray:
    """Play a policy in this process for the same visitors."""
    rng = np.random.default_rng([seed, 4])
    regret = play(policy, visitors.users, len(visitors.kinds), ROUNDS, rng)[1]
    return visitors.reward(regret)


def _means(rewards: FloatArray, parts: int) -> list[Estimate]:
    edges = np.linspace(0, len(rewards), parts + 1).astype(int)
    return [Estimate.from_values(rewards[low:high]) for low, high in pairwise(edges)]


def _leads(loop: FloatArray, pooled: FloatArray) -> list[Estimate]:
    """Return each quarter's lead of the loop over the mean of the pooled runs.

    What a service learns from its first visitors, it shows to all later ones, so that visitors of
    one run are not independent. The error holds the variation between runs, too.
    """
    leads = _means(loop - pooled.mean(axis=0), QUARTERS)  # of the same visitors
    runs = np.array([[part.mean for part in _means(run, QUARTERS)] for run in pooled])
    between = runs.std(axis=0, ddof=1) * np.sqrt(1 + 1 / len(pooled))
    return [
        Estimate(lead.mean, float(np.hypot(lead.stderr, error)))
        for lead, error in zip(leads, between, strict=True)
    ]


def _claims(
    rewards: Mapping[str, FloatArray], pooled: FloatArray, activated: list[int]
) -> list[Claim]:
    quarters = {name: _means(one, QUARTERS) for name, one in rewards.items()}
    last, aim = quarters[LOOP][-1], quarters[LOGGED][-1]
    leads = _leads(rewards[LOOP], pooled)
    enough = len(rewards[LOOP]) >= 4_000
    near = bool(last.mean >= 0.9 * aim.mean)
    above = all(lead.mean >= -2 * lead.stderr for lead in leads)
    return [
        Claim("S1", f"the last quarter earns as much as a model {LOGGED}", "at least 90%",
              f"{100 * last.mean / aim.mean:.1f}%: {last} of {aim}", near if enough else None),
        Claim("S2", f"no quarter earns less than {POOLED}", "at most 2 errors below",
              ", ".join(f"{lead:+}" for lead in leads), above if enough else None),
        Claim("S3", "a learned model takes over", "in the first half of the visitors",
              f"after {activated[0]} visitors" if activated else "never",
              bool(activated and activated[0] <= len(rewards[LOOP]) / 2) if enough else None),
    ]  # fmt: skip


def _table(rewards: Mapping[str, FloatArray]) -> Table:
    rows = [(name, *map(str, _means(one, QUARTERS))) for name, one in rewards.items()]
    columns = ("policy", *(f"quarter {q + 1}" for q in range(QUARTERS)))
    return Table("Expected reward a round", columns, rows)


def _shared(visitors: Visitors, pooled: FloatArray, seed: int) -> Table:
    """Compare the two policies that share what users teach, in the first quarter."""
    truth = visitors.truth
    between = truth.shares @ (truth.means - truth.shares @ truth.means) ** 2
    rows: list[tuple[str, ...]] = []
    for spread in (NARROW_SPREAD, float(np.sqrt(between.mean()))):
        rewards = play_hierarchical(visitors, spread, seed)
        lead = Estimate.from_values(rewards - pooled[: len(rewards)])
        name, reward = f"HierTS, spread {spread:.2f}", f"{Estimate.from_values(rewards)}"
        rows.append((name, reward, f"{lead:+}"))
    title = "Shared across users: a narrow spread between users, and the true one"
    return Table(title, ("policy", "quarter 1", f"minus {POOLED}"), rows)
