"""Users of a known truth, and the service that they visit."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from latentbandits.client import Client, ServiceError
from latentbandits.evaluation import DecisionLog
from latentbandits.models import GaussianArms
from latentbandits.models.checks import FloatArray
from latentbandits.policies.protocol import AnyPolicy

MEANS = np.array(
    [
        [0.9, 0.5, 0.4, 0.1],
        [0.1, 0.9, 0.4, 0.5],
        [0.5, 0.1, 0.9, 0.4],
    ]
)
NOISE = 0.5
TRUTH = GaussianArms(MEANS, NOISE)
BEST = MEANS.max(axis=1)
BATCH = 100


def offline_table(
    n_users: int, n_rounds: int, rng: np.random.Generator, means: FloatArray = MEANS
) -> dict[str, list[float]]:
    """Return a log of uniformly random actions, as a table of user, action and reward."""
    state = np.repeat(rng.integers(len(means), size=n_users), n_rounds)
    action = rng.integers(means.shape[1], size=len(state))
    reward = means[state, action] + NOISE * rng.standard_normal(len(state))
    user = np.repeat(np.arange(n_users), n_rounds)
    return {"user": user.tolist(), "action": action.tolist(), "reward": reward.tolist()}


def visit(
    client: Client,
    prefix: str,
    n_sessions: int,
    n_rounds: int,
    rng: np.random.Generator,
    means: FloatArray = MEANS,
) -> FloatArray:
    """Send new users to the service and return the regret of each session."""
    regret = np.zeros(n_sessions)
    state = rng.integers(len(means), size=n_sessions)
    for start in range(0, n_sessions, BATCH):
        rows = range(start, min(start + BATCH, n_sessions))
        for _ in range(n_rounds):
            answers = client.decide_many([{"session": f"{prefix}-{i}"} for i in rows])
            rewards = []
            for i, answer in zip(rows, answers, strict=True):
                if isinstance(answer, ServiceError):
                    raise answer
                mean = means[state[i], int(answer.action)]
                regret[i] += means[state[i]].max() - mean
                reward = mean + NOISE * rng.standard_normal()
                rewards.append((answer.decision_id, float(reward)))
            client.reward_many(rewards)
    return regret


def play(
    policy: AnyPolicy, n_sessions: int, n_rounds: int, rng: np.random.Generator
) -> tuple[DecisionLog, FloatArray]:
    """Play a policy in this process; return its log and the regret of each session."""
    state = rng.integers(len(MEANS), size=n_sessions)
    belief = policy.init(n_sessions)
    shape = (n_sessions, n_rounds)
    action, reward, chance = np.empty(shape, np.int64), np.empty(shape), np.empty(shape)
    regret = np.zeros(n_sessions)
    for t in range(n_rounds):
        decision = policy.decide(belief, None, rng)
        means = MEANS[state, decision.action]
        action[:, t] = decision.action
        chance[:, t] = 1.0 if decision.propensity is None else decision.propensity
        reward[:, t] = means + NOISE * rng.standard_normal(n_sessions)
        regret += BEST[state] - means
        belief = policy.update(belief, None, decision, reward[:, t])
    log = DecisionLog(action, reward, np.full(n_sessions, n_rounds), MEANS.shape[1], chance)
    return log, regret


@contextlib.contextmanager
def served(model: Path, folder: Path, *options: str) -> Iterator[str]:
    """Run the real service in a process of its own and yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "latentbandits", "serve", str(model), "--port", str(port)]
    command += ["--store", f"sqlite:{folder / 'sessions.sqlite'}", "--log-level", "warning"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LATENTBANDITS_")}
    with (folder / "service.log").open("ab") as log:
        process = subprocess.Popen([*command, *options], stdout=log, stderr=log, env=environment)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url, process, folder / "service.log")
        yield url
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    with Client(url, timeout=1.0, retries=0) as client:
        while time.monotonic() < end:
            if process.poll() is not None:
                break
            try:
                client.models()
                return
            except ServiceError:
                time.sleep(0.2)
    raise ValueError(f"the service did not start: {log.read_text()[-500:]}")
