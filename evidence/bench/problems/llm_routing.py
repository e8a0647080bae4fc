"""Questions of 14 tasks, each answered by nine language models and scored (LLMRouter)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from evidence.bench.problem import LOGGED, Problem, Sizes, Split, logged, table_log
from latentbandits.learning import Log
from latentbandits.models.checks import FloatArray

HORIZON = 40


@dataclass(frozen=True)
class Tenants:
    """Tenants with a hidden task each, whose queries are questions of it."""

    file: str = "llm-routing/scores.csv"

    def read(self, folder: Path, seed: int, n_tenants: int = 600) -> Log:
        """Return tenants who send each query to a language model at random."""
        rng = np.random.default_rng(seed)
        scores, models = self._scores(folder)
        table = _drawn(scores, models, n_tenants, LOGGED, rng, "tenant")
        return logged(table, len(models), rng)

    def load(self, folder: Path, seed: int, sizes: Sizes) -> Split:
        """Learn from one half of the questions, and play tenants with the other half."""
        rng = np.random.default_rng([seed, LOGGED])
        scores, models = self._scores(folder)
        halves: tuple[list[FloatArray], list[FloatArray]] = ([], [])
        for task in scores:
            order = rng.permutation(len(task))
            for half, part in zip(halves, np.array_split(order, 2), strict=True):
                half.append(task[part])
        train = _drawn(halves[0], models, sizes.train, LOGGED, rng, "train")
        test = _drawn(halves[1], models, sizes.test, HORIZON, rng, "test")
        return Split(logged(train, len(models), rng), test)

    def _scores(self, folder: Path) -> tuple[list[FloatArray], tuple[str, ...]]:
        """Return the scores of each task, `(n_queries, n_models)`, and the models."""
        rows = pl.read_csv(folder / self.file)
        wide = rows.pivot("model", index=["query", "task"], values="score").sort("task", "query")
        models = tuple(wide.columns[2:])
        tasks = wide.partition_by("task", maintain_order=True)
        return [task.select(models).to_numpy().astype(np.float64) for task in tasks], models


def _drawn(
    scores: Sequence[FloatArray],
    models: tuple[str, ...],
    n_tenants: int,
    n_queries: int,
    rng: np.random.Generator,
    prefix: str,
) -> Log:
    """Return tenants with `n_queries` different questions of a task, all scores known."""
    parts = []
    for task in rng.integers(len(scores), size=n_tenants):
        mine = scores[int(task)]
        parts.append(mine[rng.choice(len(mine), n_queries, replace=False)])
    return table_log(np.stack(parts), models, prefix)


TENANTS = Tenants()
PROBLEMS = (
    Problem(
        "llm-routing",
        "Tenants with a hidden task send queries; a policy picks one of nine language models.",
        "score", HORIZON, TENANTS.load, (TENANTS.file,), forms={"all": None}, replacement=True,
    ),
)  # fmt: skip
