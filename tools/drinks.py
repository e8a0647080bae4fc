"""`python -m tools.drinks`: write examples/data/drinks.csv, the log of the first tutorial.

A cafe's customers rate drinks with one to five stars. There are three kinds of customers, which
the log does not tell: coffee drinkers, tea drinkers, and people with a sweet tooth.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

PATH = Path(__file__).parents[1] / "examples" / "data" / "drinks.csv"
DRINKS = (
    "espresso",
    "cappuccino",
    "green tea",
    "black tea",
    "hot chocolate",
    "milkshake",
    "juice",
    "water",
)
MEAN_STARS = np.array(
    [
        [4.6, 4.4, 2.4, 2.6, 3.0, 2.0, 3.0, 2.8],
        [2.0, 2.6, 4.6, 4.4, 2.8, 2.0, 3.2, 3.0],
        [1.8, 3.2, 2.2, 2.4, 4.6, 4.5, 3.4, 2.2],
    ]
)
SHARES = (0.4, 0.35, 0.25)


def stars(mean: float, rng: np.random.Generator) -> int:
    """Return the stars, from 1 to 5, that a customer gives to a drink of this mean."""
    return int(np.clip(np.rint(rng.normal(mean, 1.0)), 1, 5))


def table(n_customers: int = 500, n_drinks: int = 20, seed: int = 0) -> str:
    """Return the log as CSV: customer, drink, stars, in order of time."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(len(SHARES), size=n_customers, p=SHARES)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["customer", "drink", "stars"])
    for _ in range(n_drinks):
        for customer in rng.permutation(n_customers):
            drink = rng.integers(len(DRINKS))
            given = stars(MEAN_STARS[kind[customer], drink], rng)
            writer.writerow([f"c{customer:03d}", DRINKS[drink], given])
    return out.getvalue()


if __name__ == "__main__":
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(table())
