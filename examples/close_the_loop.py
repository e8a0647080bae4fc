# %% [markdown]
# # Close the loop
#
# A service starts with a model that was learned from little data. Visitors come, `latentbandits
# relearn` learns from the service's own log, and the new model is activated only if held-out
# sessions say that it is better.
#
#     python examples/close_the_loop.py model
#     latentbandits serve models/first --store sqlite:sessions.sqlite --explore 0.2 --policy mmTS \
#         --insecure-admin
#     python examples/close_the_loop.py visit http://127.0.0.1:8000 3000
#     latentbandits relearn --service http://127.0.0.1:8000 --models models --policy mmTS

# %%
from __future__ import annotations

import sys

import numpy as np

from latentbandits.client import Client, ServiceError
from latentbandits.learning import fit, save_fit

# %% [markdown]
# Three kinds of users, four actions, and what each action pays on average. The service never sees
# this.

# %%
TRUTH = np.array([[0.9, 0.5, 0.4, 0.1], [0.1, 0.9, 0.4, 0.5], [0.5, 0.1, 0.9, 0.4]])
NOISE = 0.5

# %% [markdown]
# The first model: a fit to 15 users of 8 rounds each.


# %%
def write_first_model() -> None:
    rng = np.random.default_rng(0)
    state, action = np.repeat(rng.integers(3, size=15), 8), rng.integers(4, size=120)
    reward = TRUTH[state, action] + NOISE * rng.standard_normal(120)
    table = {"user": np.repeat(np.arange(15), 8), "action": action, "reward": reward}
    save_fit(fit(table, states=3, rewards="gaussian", bootstrap=0), "models/first")


# %% [markdown]
# Visitors: each session asks for 8 decisions and reports what they paid.


# %%
def visit(url: str, n_sessions: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    state, earned = rng.integers(3, size=n_sessions), 0.0
    with Client(url, timeout=10.0) as client:
        for start in range(0, n_sessions, 100):
            rows = range(start, min(start + 100, n_sessions))
            for _ in range(8):
                answers = client.decide_many([{"session": f"{seed}-{i}"} for i in rows])
                rewards = []
                for i, answer in zip(rows, answers, strict=True):
                    if isinstance(answer, ServiceError):
                        raise answer
                    mean = TRUTH[state[i], int(answer.action)]
                    earned += mean
                    rewards.append((answer.decision_id, mean + NOISE * rng.standard_normal()))
                client.reward_many(rewards)
    print(f"{n_sessions} sessions, {earned / n_sessions:.2f} per session")


# %%
if __name__ == "__main__":
    if sys.argv[1:2] == ["model"]:
        write_first_model()
    elif sys.argv[1:2] == ["visit"] and len(sys.argv) >= 4:
        visit(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    else:
        sys.exit("usage: close_the_loop.py model | visit URL SESSIONS [SEED]")
