"""Sessions of users, with a real service over HTTP or with a policy in this process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from evidence.loop_users import Users
from latentbandits.client import Client, ServiceError
from latentbandits.evaluation import DecisionLog
from latentbandits.models.checks import FloatArray, IntArray
from latentbandits.policies.protocol import AnyPolicy

BATCH = 100


def visit(
    client: Client,
    prefix: str,
    users: Users,
    visitors: Iterator[int],
    n_sessions: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Send the next visitors to the service and return the regret of each session."""
    regrets = []
    for start in range(0, n_sessions, BATCH):
        some = np.array(list(islice(visitors, min(BATCH, n_sessions - start))), np.int64)
        names = [f"{prefix}-{start + i}" for i in range(len(some))]
        if len(some):
            regrets.append(_together(client, names, users, some, rng))
    return np.concatenate(regrets) if regrets else np.empty(0)


def _together(
    client: Client, names: list[str], users: Users, some: IntArray, rng: np.random.Generator
) -> FloatArray:
    means, rows = users.means(some), np.arange(len(some))
    seen = np.zeros(means.shape, np.bool_)
    regret = np.zeros(len(some))
    for _ in range(users.n_rounds):
        offered = users.offers(some, seen, rng)
        answers = client.decide_many(
            [
                {"session": name, "actions": [str(a) for a in np.flatnonzero(row)]}
                for name, row in zip(names, offered, strict=True)
            ]
        )
        action, ids = np.empty(len(some), np.int64), []
        for i, answer in enumerate(answers):
            if isinstance(answer, ServiceError):
                raise answer
            action[i] = int(answer.action)
            ids.append(answer.decision_id)
        reward = users.rewards(means[rows, action], rng)
        regret += np.where(offered, means, -np.inf).max(axis=1) - means[rows, action]
        client.reward_many(list(zip(ids, reward.tolist(), strict=True)))
        seen[rows, action] = True
    return regret


def shown_means(
    policy: Any,
    means: FloatArray,
    react: Callable[[IntArray], FloatArray],
    n_rounds: int,
    rng: np.random.Generator,
    context: FloatArray | None = None,
) -> FloatArray:
    """Return the mean rewards of the actions that users are shown, `(n_users, n_rounds)`.

    `means` `(n_users, n_actions)` has the mean reward of every action; `react` draws the rewards
    of one action of each user.
    """
    users = np.arange(len(means))
    shown = np.empty((len(means), n_rounds))
    belief = policy.init(len(means))
    for t in range(n_rounds):
        decision = policy.decide(belief, context, rng, propensity=False)
        shown[:, t] = means[users, decision.action]
        belief = policy.update(belief, context, decision, react(decision.action))
    return shown


def play(
    policy: AnyPolicy, users: Users, n_sessions: int, n_rounds: int, rng: np.random.Generator
) -> tuple[DecisionLog, FloatArray]:
    """Play a policy in this process; return its log and the regret of each session."""
    some = users.draw(n_sessions, rng)
    means, rows = users.means(some), np.arange(n_sessions)
    shape = (n_sessions, n_rounds)
    action, reward, chance = np.empty(shape, np.int64), np.empty(shape), np.empty(shape)
    eligible = np.empty((*shape, users.n_actions), np.bool_)
    regret, seen = np.zeros(n_sessions), np.zeros(means.shape, np.bool_)
    belief = policy.init(n_sessions)
    for t in range(n_rounds):
        offered = eligible[:, t] = users.offers(some, seen, rng)
        decision = policy.decide(belief, None, rng, eligible=offered)
        action[:, t] = decision.action
        chance[:, t] = 1.0 if decision.propensity is None else decision.propensity
        mean = means[rows, decision.action]
        reward[:, t] = users.rewards(mean, rng)
        regret += np.where(offered, means, -np.inf).max(axis=1) - mean
        belief = policy.update(belief, None, decision, reward[:, t])
        seen[rows, decision.action] = True
    log = DecisionLog(
        action, reward, np.full(n_sessions, n_rounds), users.n_actions, chance, eligible=eligible
    )
    return log, regret


@contextlib.contextmanager
def served(model: Path, folder: Path, *options: str) -> Iterator[str]:
    """Run the real service in a process of its own and yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "latentbandits", "serve", str(model), "--port", str(port)]
    command += ["--store", f"sqlite:{folder / 'sessions.sqlite'}", "--log-level", "warning"]
    command += ["--insecure-admin"]
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


def _wait(url: str, process: subprocess.Popen[bytes], log: Path, seconds: float = 180.0) -> None:
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
