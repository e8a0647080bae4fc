# %% [markdown]
# # Customers of a cafe
#
# Simulated customers of the cafe in the
# [first tutorial](../docs/tutorials/from-a-log-to-a-service.md). Each asks the service for eight
# drinks in a row and rates every one. Start the service first.

# %%
import sys

import numpy as np

from latentbandits.client import Client

# %% [markdown]
# There are three kinds of customers. Each kind gives its favourite drinks four or five stars, and
# the others two or three.

# %%
FAVOURITES = (
    ("espresso", "cappuccino"),
    ("green tea", "black tea"),
    ("hot chocolate", "milkshake"),
)


def stars(kind: int, drink: str, rng: np.random.Generator) -> float:
    """Return what a customer of this kind gives a drink."""
    likes = drink in FAVOURITES[kind]
    return float(rng.choice([4, 5] if likes else [2, 3]))


# %% [markdown]
# A decision has an id. The rating is told for that id, at once or days later.


# %%
def visit(client: Client, name: str, kind: int, rng: np.random.Generator) -> list[float]:
    """Return the stars that one customer gave, round by round."""
    arguments = []
    for _ in range(8):
        decided = client.decide(name)
        value = stars(kind, decided.action, rng)
        client.reward(decided.decision_id, value)
        arguments.append(value)
    return arguments


def main(url: str = "http://127.0.0.1:8000", n_customers: int = 100) -> np.ndarray:
    """Return the mean stars of each round over all customers."""
    rng = np.random.default_rng(0)
    with Client(url) as client:
        rows = [
            visit(client, f"customer-{i}", int(rng.integers(3)), rng) for i in range(n_customers)
        ]
    return np.mean(rows, axis=0)


# %%
if __name__ == "__main__":
    means = main(sys.argv[1]) if len(sys.argv) > 1 else main()
    print(" ".join(f"round {i + 1}: {mean:.1f}" for i, mean in enumerate(means)))
