# %% [markdown]
# # No log yet
#
# Visitors of a news page that has twelve articles and no log. They come in four kinds, which the
# service does not know. The tutorial "No log yet" sends them to a service that starts from nothing.
#
#     python examples/no_log_yet.py http://127.0.0.1:8000 100

# %%
from __future__ import annotations

import sys

import numpy as np

from latentbandits.client import Client, ServiceError

# %% [markdown]
# How often each kind of visitor clicks each article: 5 to 30%, but 60 to 90% for the kind's own
# three. A few articles are liked by all.

# %%
KINDS, ARTICLES, ROUNDS = 4, 12, 15
RATES = np.random.default_rng(7).uniform(0.05, 0.3, (KINDS, ARTICLES))
for kind in range(KINDS):
    RATES[kind, 3 * kind : 3 * kind + 3] = (0.9, 0.7, 0.6)

# %% [markdown]
# Ten visitors at a time ask for 15 articles each, one after the other, and click or do not.


# %%
def visit(url: str, n_visitors: int, seed: int) -> float:
    """Send visitors to the service and return the share of articles that they clicked."""
    rng = np.random.default_rng(seed)
    kinds, clicks = rng.integers(KINDS, size=n_visitors), 0.0
    with Client(url, timeout=30.0) as client:
        for first in range(0, n_visitors, 10):
            rows = range(first, min(first + 10, n_visitors))
            for _ in range(ROUNDS):
                answers = client.decide_many([{"session": f"{seed}-{i}"} for i in rows])
                rewards = []
                for i, answer in zip(rows, answers, strict=True):
                    if isinstance(answer, ServiceError):
                        raise answer
                    article = int(answer.action.removeprefix("article-"))
                    rewards.append(
                        (answer.decision_id, float(rng.random() < RATES[kinds[i], article]))
                    )
                client.reward_many(rewards)
                clicks += sum(value for _, value in rewards)
    return clicks / (n_visitors * ROUNDS)


# %%
if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: no_log_yet.py URL VISITORS [SEED]")
    number, seed = int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1
    share = visit(sys.argv[1], number, seed)
    print(f"{number} visitors clicked {100 * share:.0f}% of what they were shown")
