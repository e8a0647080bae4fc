"""The report of a fit as tables, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from latentbandits.options import in_words
from latentbandits.report.notebook import plural
from latentbandits.report.report import Estimate, Table

_SHOWN = 3  # best and worst actions per state; the page lists more
_SUMMARY_LINES = 12  # of the summary's table: with the verdict it fits on a screen


def model_sentence(report: Mapping[str, Any]) -> str:
    """Return what was learned and from how much, as a sentence."""
    log, settings = report["log"], report["settings"]
    rank = "" if settings["rank"] is None else f", rank {settings['rank']}"
    return (
        f"A model of {report['family']} rewards (kind {settings['kind']}) with "
        f"{plural(settings['states'], 'state')}{rank}, learned from {log['rewards']:,} rewards of "
        f"{plural(log['users'], 'user')} for {plural(log['actions'], 'action')}."
    )


def summary_table(report: Mapping[str, Any]) -> Table:
    """Return a short table of the states: their shares of users, and the actions that mark them."""
    states = report["states"]
    listed = min(_SHOWN, max(1, _SUMMARY_LINES // len(states)))
    rows = [
        _state(state, ("best", "more_than_others"), listed) for state in states[:_SUMMARY_LINES]
    ]
    if len(states) > _SUMMARY_LINES:
        rows.append(("...", "", "", f"{len(states) - _SUMMARY_LINES} more states", ""))
    columns = ("state", "users", "mean", "pays most", "more than in other states")
    return Table(model_sentence(report), columns, rows, one_line=True)


def tables(report: Mapping[str, Any]) -> list[Table]:
    """Return the tables of a fit's report, for `fit --verbose` and `inspect`."""
    shown = [*choice_tables(report), states_table(report["states"]), *error_tables(report)]
    judged = report.get("judgement")  # reports of version 0.1 have none
    return shown if not judged or not judged["replay"] else [*shown, replay_table(judged)]


def choice_tables(report: Mapping[str, Any]) -> list[Table]:
    """Return tables of the log, and of what the model was chosen from."""
    optional = {"lists": _lists, "kinds": _kinds, "families": _families}
    shown = [table(report[name]) for name, table in optional.items() if report.get(name)]
    return [_log(report["log"]), *shown, _selection(report["selection"])]


def _lists(lists: Mapping[str, Any]) -> Table:
    """Return a table of how users look at lists."""
    lengths = [f"{n:,} of {length}" for length, n in lists["lengths"].items()]
    rows: list[tuple[str, ...]] = [
        ("click model", f"{lists['name']}: {lists['reason']}"),
        ("lists", f"{lists['lists']:,}, by number of positions: {', '.join(lengths)}"),
        ("rows not observed", f"{lists['not_observed']:,}"),
        ("reward by position", ", ".join(f"{reward:.3g}" for reward in lists["reward"])),
    ]
    if "examination" in lists:
        errors = lists["examination_stderr"] or [0.0] * len(lists["examination"])
        pairs = zip(lists["examination"], errors, strict=False)
        looked = ", ".join(_estimate(e, error).lstrip("+") for e, error in pairs)
        rows.append(("looked at, by position", looked))
    for name, row in lists["candidates"].items():
        if "nats_per_user" in row and name != "each":
            lead = _estimate(row["nats_per_user"], row["stderr"])
            rows.append((f"{name} against each", f"{lead} nats a held-out user"))
        elif "reason" in row:
            rows.append((f"{name} against each", f"cannot be: {row['reason']}"))
    return Table("How users look at lists", ("", ""), rows)


def error_tables(report: Mapping[str, Any]) -> list[Table]:
    """Return tables of the errors on held-out users, of the uncertainty, and of optional parts."""
    held_out = report["held_out"]
    return [
        *([] if held_out is None else [_held_out(held_out)]),
        _uncertainty(report["uncertainty"]),
        *attribute_tables(report),
    ]


def replay_table(judged: Mapping[str, Any]) -> Table:
    """Return the policies of a fit on the real rewards of held-out users; * is recommended."""
    simulated = {
        row["policy"]: Estimate(row["regret"], row["stderr"]) for row in judged["simulated"]
    }
    last = max(row["rounds"] for row in judged["replay"])
    users = next(row["users"] for row in judged["replay"] if row["rounds"] == last)
    one = shown_in_round(judged)
    title = f"Held-out users on their real rewards ({users:,} with {last} {one}s; * is recommended)"
    plain = difference_table(title, judged["replay"], one)
    body = [
        (
            row[0] + ("*" if row[0] == judged["recommended_policy"] else ""),
            *row[1:],
            str(simulated.get(row[0], "")),
        )
        for row in plain.rows
    ]
    return Table(title, (*plain.columns, "simulated regret"), body)


def shown_in_round(judged: Mapping[str, Any]) -> str:
    """Return what a round of replay is called: list or round."""
    return "list" if judged.get("length") else "round"


def difference_table(title: str, rows: Sequence[Mapping[str, Any]], one: str = "round") -> Table:
    """Return a table of each policy's reward in replay and paired difference from popularity."""
    horizons = sorted({row["rounds"] for row in rows})
    by_policy = {(row["policy"], row["rounds"]): row for row in rows}
    body: list[tuple[str, ...]] = []
    for policy in dict.fromkeys(row["policy"] for row in rows):
        differences = [by_policy[policy, h] for h in horizons]
        leads = [Estimate(r["over_popularity"], r["over_popularity_stderr"]) for r in differences]
        body.append(
            (
                policy,
                str(Estimate(differences[-1]["reward"], differences[-1]["stderr"])),
                *("" if policy == "popularity" else f"{lead:+}" for lead in leads),
            )
        )
    leading = (f"over popularity, 1-{h}" for h in horizons)
    return Table(title, ("policy", f"reward, {one}s 1-{horizons[-1]}", *leading), body)


def attribute_tables(report: Mapping[str, Any]) -> list[Table]:
    """Return a table of optional steps, and one for attributes of users and of items."""
    optional: dict[str, Callable[[Any], Table]] = {
        "steps": _steps, "user_features": _worth, "item_features": _items,
    }  # fmt: skip
    return [table(report[name]) for name, table in optional.items() if report.get(name)]


def _steps(steps: Sequence[Mapping[str, Any]]) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            step["step"],
            _estimate(step["nats_per_user"], step["stderr"] or 0.0),
            "used" if step["used"] else "left out: it lowers the evidence",
        )
        for step in steps
    ]
    title = "Optional steps, by the evidence of held-out users"
    return Table(title, ("step", "nats a user, with less without", ""), rows)


def _items(items: Mapping[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            row["vectors"],
            _estimate(row["reward"], row["stderr"]).lstrip("+"),
            ""
            if row["vectors"] == "learned"
            else _estimate(row["over_learned"], row["over_learned_stderr"]),
        )
        for row in items["replay"]
    ]
    title = (
        f"New items by {', '.join(items['columns'])}: {items['explained']:.0%} of what expected "
        "rewards differ by is predicted; held-out users on items as if new, rounds 1-20"
    )
    return Table(title, ("vectors", "reward", "over learned"), rows)


def one_state_sentence(report: Mapping[str, Any]) -> str:
    """Return what the report says about one state; empty if it earns less than several."""
    compared = report.get("one_state")
    return str(compared["sentence"]) if compared else ""


def dynamics_sentence(report: Mapping[str, Any]) -> str:
    """Return whether the state moves, and why; empty if a report has nothing about it."""
    dynamics = report.get("dynamics")
    if not dynamics:
        return ""
    if dynamics["chosen"] == "none":
        return f"The state of a user stands still: {dynamics['reason']}."
    lasts = ", ".join(f"{state['lasts']:.3g}" for state in report["states"])
    pause = ""
    if dynamics["returning"] is not None:
        stays = ", ".join(f"{row[s]:.0%}" for s, row in enumerate(dynamics["returning"]))
        pause = f" After a pause of {in_words(dynamics['session_gap'])} users are still in it in "
        pause += f"{stays} of the cases."
    return (
        f"The state of a user moves, and lasts {lasts} rounds on average: {dynamics['reason']}."
        f"{pause}"
    )


def _worth(worth: Mapping[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            str(row["round"]),
            _estimate(row["nats"], row["nats_stderr"]),
            f"{row['users']:,}",
            _estimate(row["reward"], row["reward_stderr"]),
            f"{row['players']:,}",
        )
        for row in worth["worth"]
    ]
    names = ", ".join(worth["columns"])
    title = f"What {names} are worth on held-out users (with less without; {worth['policy']})"
    return Table(title, ("round", "nats a reward", "users", "reward", "users played"), rows)


def _estimate(mean: float | None, stderr: float | None) -> str:
    return "" if mean is None or stderr is None else f"{Estimate(mean, stderr):+}"


def _log(log: Mapping[str, Any]) -> Table:
    per_user = log["rewards_per_user"]
    lengths = f"{per_user['least']} to {per_user['most']}, median {per_user['median']:g}"
    moments = f"mean {log['reward_mean']:.3g}, sd {log['reward_sd']:.3g}"
    repeated = f"{log['repeated_pairs']:,}"
    if log["repeated_pairs"]:
        repeated += f": {log['repeated_pairs_are']}"
    rows: list[tuple[str, ...]] = [
        ("users", f"{log['users']:,}"),
        ("actions", f"{log['actions']:,}"),
        ("rewards", f"{log['rewards']:,} ({moments})"),
        ("rewards of a user", lengths),
        ("repeated (user, action)", repeated),
        ("rows that repeat another", f"{log.get('repeated_rows', 0):,}"),
    ]
    return Table("The log", ("", ""), rows)


def _kinds(choice: Mapping[str, Any]) -> Table:
    """Return a table with the reason for the kind of model."""
    return Table("The kind", ("", ""), [("chosen", choice["sentence"])])


def _families(choice: Mapping[str, Any]) -> Table:
    """Return a table with the reason for the reward family, and a transform that would help."""
    rows: list[tuple[str, ...]] = [("chosen", f"{choice['chosen']}: {choice['reason']}")]
    if choice["recommended_transform"] is not None:
        words = "predicts held-out rewards better than any family without a transform"
        rows.append(("try", f"--transform {choice['recommended_transform']}: it {words}"))
    return Table("The rewards", ("", ""), rows)


def _selection(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return one row per rank and one column per number of states: evidence over error; * is
    chosen.
    """
    states = sorted({row["states"] for row in rows})
    body: list[tuple[str, ...]] = []
    for rank in dict.fromkeys(row["rank"] for row in rows):
        by_states = {row["states"]: row for row in rows if row["rank"] == rank}
        name = "" if rank is None else f"rank {rank}"
        if any(row["elbo"] is not None for row in by_states.values()):
            body.append(("ELBO", *(_nats(by_states.get(n), "elbo") for n in states)))
            corrected = (_nats(by_states.get(n), "log_evidence") for n in states)
            body.append(("  corrected", *corrected))
            name = "evidence"
        body.append((name, *(_evidence(by_states.get(n)) for n in states)))
        body.append(("  error", *(_error(by_states.get(n)) for n in states)))
    title = "Evidence of held-out users (nats per reward; * is chosen) and error, by states"
    return Table(title, ("", *(str(n) for n in states)), body)


def _nats(row: Mapping[str, Any] | None, name: str) -> str:
    return "" if row is None or row.get(name) is None else f"{row[name]:.1f}"


def _evidence(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    if row["evidence"] is None:
        return "too many"
    return f"{row['evidence']:.4f}" + ("*" if row["chosen"] else "")


def _error(row: Mapping[str, Any] | None) -> str:
    return "" if row is None or row["rmse"] is None else f"{row['rmse']:.4f}"


def states_table(states: Sequence[Mapping[str, Any]]) -> Table:
    """Return each state's share of users, and its best and worst actions."""
    body = [_state(state, ("best", "worst", "more_than_others"), _SHOWN) for state in states]
    columns = ("state", "users", "mean", "pays most", "pays least", "more than in other states")
    return Table("The states", columns, body)


def _state(state: Mapping[str, Any], lists: Sequence[str], listed: int) -> tuple[str, ...]:
    """Return the row of a state, with the first `listed` actions of each of its `lists`."""
    names = (
        "\n".join(f"{a['reward']:.3g} {a['name']}" for a in state[key][:listed]) for key in lists
    )
    number = str(state["state"] + 1)  # states are shown from 1
    return number, f"{state['share']:.1%}", f"{state['mean_reward']:.3f}", *names


def _held_out(held_out: Mapping[str, Any]) -> Table:
    covered = ", ".join(f"{row['level']:.0%}: {row['covered']:.1%}" for row in held_out["coverage"])
    rounds = ", ".join(f"{_span(row)}: {row['rmse']:.3f}" for row in held_out["rmse_by_round"])
    rows: list[tuple[str, ...]] = [
        ("judged on", f"{held_out['users']:,} users, {held_out['rewards']:,} rewards"),
        (
            "error",
            f"{held_out['rmse']:.4f} (the action's mean: {held_out['rmse_of_action_means']:.4f})",
        ),
        ("error by round", rounds),
        ("rewards inside intervals", covered),
    ]
    if held_out["rewards_of_unknown_actions"]:
        left_out = f"{held_out['rewards_of_unknown_actions']:,}, left out"
        rows.append(("of actions not seen before", left_out))
    return Table("Held-out users", ("", ""), rows)


def _span(row: Mapping[str, Any]) -> str:
    return str(row["to"]) if row["from"] == row["to"] else f"{row['from']}-{row['to']}"


def _uncertainty(uncertainty: Mapping[str, Any]) -> Table:
    columns = {"prior_all": "prior, all actions", "bootstrap_all": "bootstrap, all actions"}
    if uncertainty["actions_known_well"] < uncertainty["actions_known"]:
        well = f"{uncertainty['actions_known_well']:,} frequent actions"
        columns |= {"prior_known_well": f"prior, {well}"}
        columns |= {"bootstrap_known_well": f"bootstrap, {well}"}
    body: list[tuple[str, ...]] = [
        (f"{row['delta']:g}", *("" if row[k] is None else f"{row[k]:.3f}" for k in columns))
        for row in uncertainty["epsilon"]
    ]
    title = "How wrong it may be: with probability 1 - delta, every mean is within epsilon"
    title += f"; noise {uncertainty['noise']:.4f}"
    if uncertainty["typical_error"] is not None:
        error, n_fits = uncertainty["typical_error"], uncertainty["bootstrap_fits"]
        title += f"; typical error {error:.3f} over {n_fits} fits"
    return Table(title + _parts(uncertainty), ("delta", *columns.values()), body)


def _parts(uncertainty: Mapping[str, Any]) -> str:
    """Return the two parts of the prior of arms."""
    if uncertainty.get("estimation") is None:
        return ""
    strength, within = uncertainty["within_strength"], "none"
    if strength is not None:
        within = f"sd {uncertainty['within']:.2g} (worth {strength:g} rewards)"
    return f"; estimation error sd {uncertainty['estimation']:.2g}, users within a state {within}"
