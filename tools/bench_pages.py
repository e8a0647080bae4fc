"""The tables of the documentation's pages: `python -m tools.bench_pages`.

They are made from docs/figures/results/bench.json, and written between the comments
`<!-- bench: NAME -->` and `<!-- end -->` of the pages; `--check` says whether they are there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from evidence.bench.contestants import DEFAULTS
from evidence.bench.experiment import ERRORS, states_table

from latentbandits.report.report import Table, estimate_in
from tools.figures import kept

DOCS = Path(__file__).parents[1] / "docs"
KEPT = DOCS / "figures" / "results" / "bench.json"
PAGES = (DOCS / "evidence" / "bench.md", DOCS / "concepts" / "when-states-pay.md")

_WIDE = 5  # problems side by side
_PART = re.compile(r"<!-- bench: ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)


def tables(results: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables in Markdown by name."""
    problems = _problems(results)
    return {
        "overall": markdown(overall(problems)),
        "problems": markdown(problem_table(problems)),
        "all": _matrices(problems, "all"),
        "first": _matrices(problems, "first"),
        "states": markdown(states_table(problems)),
        "recommended": markdown(recommended(problems)),
    }


def _problems(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the results of each problem with its rows."""
    return [
        {**one, "rows": [row for row in results["policies"] if row["setting"] == one["problem"]]}
        for one in results["settings"]["results"]
    ]


def problem_table(problems: Sequence[Mapping[str, Any]]) -> Table:
    """Return what each problem is, and what `fit` learned."""
    body: list[tuple[str, ...]] = []
    for one in problems:
        model = one["model"]
        learned = f"{model['kind']}, {model['states']}"
        users = f"{one['train_users']:,} / {one['test_users']:,}"
        offered = f"{one['rows'][0]['form']}{', again' if one['replacement'] else ''}"
        body.append((one["problem"], one["unit"], users, str(one["horizon"]), offered, learned))
    columns = (
        "problem",
        "reward",
        "users: train / test",
        "rounds",
        "offered",
        "`fit`: kind, states",
    )
    return Table("Problems", columns, body)


def _main_rows(one: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [row for row in one["rows"] if row["form"] == one["rows"][0]["form"]]


def overall(problems: Sequence[Mapping[str, Any]]) -> Table:
    """Return the contestants by their mean rank over all problems that they could play."""
    ranks: dict[str, list[int]] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for one in problems:
        ranked = sorted(_main_rows(one), key=lambda row: -row["all_reward"])
        for rank, row in enumerate(ranked, start=1):
            ranks.setdefault(row["policy"], []).append(rank)
            rows.setdefault(row["policy"], []).append(row)
    body: list[tuple[str, ...]] = []
    for policy in sorted(ranks, key=lambda policy: mean(ranks[policy])):
        signs = {
            key: [_sign(row, f"{key}_gain") for row in rows[policy]] for key in ("first", "all")
        }
        body.append((
            f"`{policy}`", f"{mean(ranks[policy]):.1f}", str(len(ranks[policy])),
            *(str(signs[key].count(sign)) for key in ("all", "first") for sign in (1, -1)),
            f"{median(row['microseconds'] for row in rows[policy]):.0f}",
        ))  # fmt: skip
    columns = ("contestant", "mean rank", "problems", "above popularity", "below", "above in 1-10",
               "below in 1-10", "us")  # fmt: skip
    return Table("Contestants over all problems", columns, body)


def _sign(row: Mapping[str, Any], name: str) -> int:
    gain = estimate_in(row, name)
    return 0 if abs(gain.mean) <= ERRORS * gain.stderr else (1 if gain.mean > 0 else -1)


def recommended(problems: Sequence[Mapping[str, Any]]) -> Table:
    """Return what `fit` recommends beside the best contestant of the other half of the users."""
    body: list[tuple[str, ...]] = []
    for one in problems:
        found = one["against_best"]
        cells = [one["problem"], f"`{one['model']['recommended_policy']}`"]
        for key in ("all", "first"):
            cells += [f"`{found[f'{key}_best']}`", f"{estimate_in(found, f'{key}_lead'):+}"]
        body.append((*cells, f"{estimate_in(found, 'first_over_popularity'):+}"))
    columns = ("problem", "`auto`", "best, all rounds", "`auto` less it", "best, rounds 1-10",
               "`auto` less it", "`auto` over popularity, 1-10")  # fmt: skip
    return Table("What fit recommends", columns, body)


def _matrices(problems: Sequence[Mapping[str, Any]], key: str) -> str:
    """Return tables of the gains of all contestants, with a few problems in each."""
    parts = [problems[i : i + _WIDE] for i in range(0, len(problems), _WIDE)]
    return "\n\n".join(markdown(matrix(part, key)) for part in parts)


def matrix(problems: Sequence[Mapping[str, Any]], key: str) -> Table:
    """Return the gains over popularity; the best contestant of a problem is bold."""
    body: list[tuple[str, ...]] = []
    best = {one["problem"]: max(row[f"{key}_gain"] for row in _main_rows(one)) for one in problems}
    for policy in DEFAULTS:
        cells = []
        for one in problems:
            row = next((row for row in _main_rows(one) if row["policy"] == policy), None)
            text = "" if row is None else f"{estimate_in(row, f'{key}_gain'):+}"
            bold = row is not None and row[f"{key}_gain"] == best[one["problem"]]
            cells.append(f"**{text}**" if bold else text)
        body.append((f"`{policy}`", *cells))
    return Table("Gains", ("contestant", *(one["problem"] for one in problems)), body)


def markdown(table: Table) -> str:
    """Return a table in Markdown; all columns but the first are aligned to the right.

    >>> print(markdown(Table("", ("a", "b"), [("x", "1")])))
    |a|b|
    |---|---:|
    |x|1|
    """
    rule = "|---|" + "---:|" * (len(table.columns) - 1)
    lines = [f"|{'|'.join(row)}|" for row in (table.columns, *table.rows)]
    return "\n".join([lines[0], rule, *lines[1:]])


def filled(text: str, parts: Mapping[str, str]) -> str:
    r"""Return the text of a page with the tables in their places.

    >>> filled("<!-- bench: states -->\nold\n<!-- end -->", {"states": "new"}).splitlines()
    ['<!-- bench: states -->', '', 'new', '', '<!-- end -->']
    """
    return _PART.sub(
        lambda found: f"<!-- bench: {found[1]} -->\n\n{parts[found[1]]}\n\n<!-- end -->", text
    )


def main() -> int:
    """Write the tables into the pages; with --check, return 2 if they are others."""
    parts, stale = tables(kept.read(KEPT)), 0
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = filled(before, parts)
        stale += before != after
        if "--check" not in sys.argv:
            page.write_text(after, encoding="utf-8")
    return 2 if "--check" in sys.argv and stale else 0


if __name__ == "__main__":
    sys.exit(main())
