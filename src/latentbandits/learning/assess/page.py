"""Render the report as one self-contained HTML file with its figures embedded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from latentbandits.learning.assess.tables import (
    choice_tables,
    dynamics_sentence,
    error_tables,
    model_sentence,
    one_state_sentence,
    replay_table,
    shown_in_round,
)
from latentbandits.report.notebook import html_table, image, plural, titled

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem;
  max-width: 70rem; color: #222; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
img { width: 100%; } table { border-collapse: collapse; margin: 0.5rem 0; display: block;
  overflow-x: auto; }
th, td { text-align: left; padding: 0.2rem 0.9rem 0.2rem 0; vertical-align: top; }
th { border-bottom: 1px solid #999; font-weight: 600; }
.states { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(24rem, 100%), 1fr)); }
.state { border: 1px solid #ddd; border-radius: 6px; padding: 0.2rem 1rem 0.8rem; }
.verdict { border-left: 6px solid #8c8c8c; background: #f6f6f6; padding: 0.6rem 1rem;
  font-size: 1.15rem; }
.verdict.helps { border-color: #009e73; } .verdict.harms { border-color: #d55e00; }
.warnings { border-left: 6px solid #d55e00; padding: 0.1rem 1rem; background: #fdf3ec; }
.note { color: #555; }
""".strip()

_LISTS = (
    ("best", "Pays most"),
    ("worst", "Pays least"),
    ("more_than_others", "More than in other states"),
    ("less_than_others", "Less than in other states"),
)


def render(
    report: Mapping[str, Any],
    figure_png: bytes,
    verdict_png: bytes | None = None,
    lists_png: bytes | None = None,
) -> str:
    """Return the page: the verdict and its figure first, then the model's details."""
    held_out, summary = report["held_out"], model_sentence(report)
    judged = (
        f"On {plural(held_out['users'], 'held-out user')}, a reward was predicted to "
        f"{held_out['rmse']:.3g} (the action's mean over all users: "
        f"{held_out['rmse_of_action_means']:.3g})."
    )
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{escape(summary)}</title>",
        f"<style>{_STYLE}</style><h1>Is this model worth using?</h1>",
        _verdict(report["judgement"], verdict_png),
        f"<p>{escape(one_state_sentence(report))}</p>",
        _warnings(report["warnings"]),
        "<h1>What the log taught</h1>",
        f"<p>{escape(summary)} {escape(judged)}</p>",
        image(figure_png, "figures of the fit"),
        "" if lists_png is None else image(lists_png, "how users look at lists, by position"),
        f"<p>{escape(dynamics_sentence(report))}</p>",
        "<h2>The states</h2><div class='states'>",
        *(_state(state) for state in report["states"]),
        "</div>",
        *(titled(table) for table in (*choice_tables(report), *error_tables(report))),
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def _verdict(judged: Mapping[str, Any], png: bytes | None) -> str:
    """Return the verdict's sentence, its figure and the table of replay, as HTML."""
    kind = judged["verdict"].split()[0]
    parts = [f"<p class='verdict {kind}'>{escape(judged['sentence'])}</p>"]
    if png is not None:
        parts.append(image(png, "reward by round of each policy, and differences"))
    if not judged["replay"]:
        return "".join(parts)
    parts.append(titled(replay_table(judged)))
    one = shown_in_round(judged)
    offered = f"{judged['offered']} of the user's own rows that were not shown yet"
    again = "" if judged["simulated_replacement"] else " and shown no action twice"
    if one == "list":
        offered += f", of different actions, for a list of {judged['length']}"
    parts.append(
        f"<p class='note'>Every round offers {offered}. Differences are "
        "paired by user; ± is one standard error. The last column is the regret over "
        f"{judged['simulated_rounds']} {one}s with users drawn from the model{again}: the least "
        "among the policies that replay does not veto is recommended. "
        f"{escape(judged['caveat'])}</p>"
    )
    if judged["value_of_state"] is not None:
        parts.append(
            f"<p>Knowing a user's state would be worth {judged['value_of_state']:.3g} a {one} over "
            f"the best {'action' if one == 'round' else 'actions'} on average, by the model.</p>"
        )
    return "".join(parts)


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    return f"<h2>Warnings</h2><ul class='warnings'>{items}</ul>"


def _state(state: Mapping[str, Any]) -> str:
    lists = []
    for key, title in _LISTS:
        if not state[key]:  # no action pays more (or less) than in other states
            continue
        rows = ((a["name"], f"{a['reward']:.3g}", f"{a['lift']:+.2g}") for a in state[key])
        lists.append(html_table((title, "reward", "lift"), rows))
    title = f"State {state['state'] + 1}: {state['share']:.1%} of users"
    mean = f"Mean reward {state['mean_reward']:.3g}"
    if state.get("lasts") is not None:
        mean += f", lasts {state['lasts']:.3g} rounds on average"
    return f"<div class='state'><h3>{title}</h3><p>{mean}</p>{''.join(lists)}</div>"
