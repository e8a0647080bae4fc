"""The pages of the service's settings and metrics."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from latentbandits.options import in_words
from latentbandits.serving.engine.statistics import CLICKED_AT, SHOWN_AT, Tally
from latentbandits.serving.http.messages import DifferenceView
from latentbandits.serving.http.metrics import Metrics, Snapshot, TotalsCollector
from latentbandits.serving.settings import PREFIX, TIMES, Settings
from tools.site.reference.docstrings import escaped


def settings_page() -> str:
    """Return the reference of settings."""
    rows = []
    for field in msgspec.structs.fields(Settings):
        described, meta = get_args(field.type)[:2]
        default = "none" if field.default in (None, "") else field.default
        if field.name in TIMES and field.default:
            default = in_words(field.default)
        flag = f"--{field.name.replace('_', '-')}"
        choices = [value for value in get_args(described) if isinstance(value, str)]
        text = meta.description + (f" (one of {', '.join(choices)})" if choices else "")
        rows.append(f"| `{field.name}` | `{flag}` | {default} | {escaped(text)} |")
    return (
        "\n\n".join(
            [
                "# Settings of the service",
                "Each setting is a flag of `latentbandits serve`, a key of the TOML file given by "
                f"`--config` (or `{PREFIX}CONFIG`), and an environment variable `{PREFIX}NAME`. "
                "Flags win over the file, the file over the environment. Times are written 30s, "
                "15m, 2h or 30d; plain numbers are seconds.",
                "\n".join(["| setting | flag | default | |", "|---|---|---|---|", *rows]),
                "[Run the service](../how-to/run-the-service.md) explains how they work together.",
            ]
        )
        + "\n"
    )


def families() -> list[Any]:
    """Return every family of metrics, collected from a service that has seen a request."""
    metrics = Metrics()
    metrics.observe("/v1/decide", 201, 0.001)
    counts = dict.fromkeys(
        ("applied", "duplicate", "late", "open", "started", "expired", "restarted", "merged",
         "deleted", "unexplained"), 1
    )  # fmt: skip
    view = DifferenceView(group="holdout", above="main", mean=0.0, low=-1.0, high=1.0)
    seen = Snapshot(
        counts,
        [("mmTS", "model", Tally())],
        [("main", "mmTS", 1, 1.0)],
        [("main", 1, 1.0)],
        [view],
        {"lists": 1, f"{SHOWN_AT}1": 1, f"{CLICKED_AT}1": 1},
        "model",
        0.0,
    )
    return [*metrics.registry.collect(), *TotalsCollector(seen).collect()]


def metric_name(family: Any) -> str:
    """Return the name of a metric as Prometheus shows it."""
    return f"{family.name}_total" if family.type == "counter" else str(family.name)


def metrics_page() -> str:
    """Return the reference of metrics."""
    rows = []
    for family in families():
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        named = ", ".join(f"`{label}`" for label in labels)
        name, help_text = metric_name(family), escaped(family.documentation)
        rows.append(f"| `{name}` | {family.type} | {named} | {help_text} |")
    return (
        "\n\n".join(
            [
                "# Metrics",
                "`GET /metrics` answers in the text format of Prometheus. With API keys it needs "
                "one with the scope `read`.",
                "\n".join(["| metric | type | labels | |", "|---|---|---|---|", *rows]),
            ]
        )
        + "\n"
    )
