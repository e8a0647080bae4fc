"""`evaluate` on a million logged decisions, by processor time and memory of its process.

100,000 sessions of 10 rounds, 10 arms, 5 states, logged by an exploring mTS. Reading the log,
all estimators and the figure are included.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks._commands import measure_command
from benchmarks.report import Report, Table, Target
from latentbandits import GaussianArms, mTS, save
from latentbandits.policies import Exploring

SESSIONS, ROUNDS, ACTIONS, STATES = 100_000, 10, 10, 5
NOISE, SPREAD, EXPLORE = 0.5, 0.1, 0.1
BOUNDS = {"mTS": 60, "mmTS": 300, "mmIDS": 300}  # processor seconds


def main() -> Report:
    with tempfile.TemporaryDirectory() as folder:
        log, model = Path(folder) / "log.parquet", Path(folder) / "model"
        _write(log, model)
        words = ["evaluate", str(log), "--model", str(model), "--draws", "100"]
        words += ["--out", str(Path(folder) / "out"), "--policies"]
        measured = {policy: measure_command([*words, policy]) for policy in BOUNDS}
    rows = tuple((policy, *values) for policy, values in measured.items())
    targets = [
        Target(f"{policy}: a million decisions", measured[policy][0], at_most=bound, unit="s")
        for policy, bound in BOUNDS.items()
    ]
    targets.append(Target("mTS: peak memory", measured["mTS"][1], at_most=1, unit="GiB"))
    title = f"evaluate: {SESSIONS:,} sessions of {ROUNDS} rounds, {ACTIONS} arms, {STATES} states"
    table = Table(title, ("candidate", "processor s", "peak GiB"), rows)
    return Report("Evaluation from logs", (table,), tuple(targets))


def _write(log: Path, folder: Path) -> None:
    """Write the log of an exploring mTS and the candidates' model."""
    import polars

    rng = np.random.default_rng(0)
    means = rng.random((STATES, ACTIONS))
    model = GaussianArms(means, NOISE, SPREAD)
    save(model, folder)
    policy = Exploring(mTS(model), EXPLORE)
    state, belief = rng.integers(STATES, size=SESSIONS), policy.init(SESSIONS)
    columns: dict[str, list[np.ndarray]] = {}
    for t in range(ROUNDS):
        decision = policy.decide(belief, None, rng)
        reward = means[state, decision.action] + NOISE * rng.standard_normal(SESSIONS)
        belief = policy.update(belief, None, decision, reward)
        values = {
            "session": np.arange(SESSIONS),
            "round": np.full(SESSIONS, t + 1),
            "action": decision.action,
            "reward": reward,
            "propensity": decision.propensity,
        }
        for name, column in values.items():
            columns.setdefault(name, []).append(column)
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    polars.DataFrame(joined).sort("session", "round").write_parquet(log)
