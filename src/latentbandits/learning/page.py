"""The report as one HTML file that needs no other: the figure inside it, the states by name."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; color: #222; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
img { width: 100%; } table { border-collapse: collapse; margin: 0.5rem 0; }
th, td { text-align: left; padding: 0.2rem 0.9rem 0.2rem 0; vertical-align: top; }
th { border-bottom: 1px solid #999; font-weight: 600; }
.states { display: grid; grid-template-columns: repeat(auto-fill, minmax(24rem, 1fr)); gap: 1rem; }
.state { border: 1px solid #ddd; border-radius: 6px; padding: 0.2rem 1rem 0.8rem; }
""".strip()

_LISTS = (
    ("best", "Pays most"),
    ("worst", "Pays least"),
    ("more_than_others", "More than in other states"),
    ("less_than_others", "Less than in other states"),
)


def render(report: Mapping[str, Any], figure_png: bytes) -> str:
    log, held_out, settings = report["log"], report["held_out"], report["settings"]
    image = base64.b64encode(figure_png).decode()
    rank = "" if settings["rank"] is None else f", rank {settings['rank']}"
    summary = (
        f"A {settings['kind']} model with {settings['states']} states{rank}, learned from "
        f"{log['rewards']:,} rewards of {log['users']:,} users for {log['actions']:,} actions."
    )
    repeated = f"{log['repeated_pairs']:,} rewards repeat a pair of user and action"
    if log["repeated_pairs"]:
        repeated += f"; {log['repeated_pairs_are']}"
    judged = (
        f"On {held_out['users']:,} users who were held out, a reward was foreseen to "
        f"{held_out['rmse']:.3f} (the action's mean over all users: "
        f"{held_out['rmse_of_action_means']:.3f})."
    )
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(summary)}</title>",
        f"<style>{_STYLE}</style><h1>What the log taught</h1>",
        f"<p>{escape(summary)} {escape(repeated)}. {escape(judged)}</p>",
        f"<img alt='figures of the fit' src='data:image/png;base64,{image}'>",
        "<h2>The states</h2><div class='states'>",
        *(_state(state) for state in report["states"]),
        "</div><h2>Calibration on held-out users</h2>",
        _table(("interval", "held"), ((f"{row['level']:.0%}", f"{row['covered']:.1%}")
               for row in held_out["coverage"])),
        "<h2>What it was chosen from</h2>",
        _table(("rank", "states", "evidence", "error", ""), map(_candidate, report["selection"])),
        "<h2>How wrong it may be</h2>",
        _uncertainty(report["uncertainty"]),
        "</html>",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _state(state: Mapping[str, Any]) -> str:
    lists = []
    for key, title in _LISTS:
        if not state[key]:  # there are no other states
            continue
        rows = ((a["name"], f"{a['reward']:.2f}", f"{a['lift']:+.2f}") for a in state[key])
        lists.append(_table((title, "reward", "lift"), rows))
    title = f"State {state['state']}: {state['share']:.1%} of users"
    mean = f"Mean reward {state['mean_reward']:.3f}"
    return f"<div class='state'><h3>{title}</h3><p>{mean}</p>{''.join(lists)}</div>"


def _candidate(row: Mapping[str, Any]) -> Sequence[str]:
    rank = "" if row["rank"] is None else str(row["rank"])
    if row["evidence"] is None:
        return rank, str(row["states"]), "", "", row["reason"]
    mark = "chosen" if row["chosen"] else ""
    return rank, str(row["states"]), f"{row['evidence']:.4f}", f"{row['rmse']:.4f}", mark


def _uncertainty(found: Mapping[str, Any]) -> str:
    keys = ("prior_all", "prior_known_well", "bootstrap_all", "bootstrap_known_well")
    rows = (
        (f"{row['delta']:g}", *("" if row[k] is None else f"{row[k]:.3f}" for k in keys))
        for row in found["epsilon"]
    )
    columns = ("delta", "epsilon: prior, all actions", "frequent actions",
               "epsilon: bootstrap, all actions", "frequent actions")  # fmt: skip
    return f"<p>Noise of a reward: {found['noise']:.4f}.</p>" + _table(columns, rows)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"
