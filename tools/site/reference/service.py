"""The pages of the service's settings and metrics."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from latentbandits import GaussianArms
from latentbandits.options import in_words
from latentbandits.serving.engine.engine import Engine
from latentbandits.serving.engine.model_rows import pack
from latentbandits.serving.engine.values import DecisionRequest, RewardReport
from latentbandits.serving.http.metrics import Metrics, totals_as_metrics
from latentbandits.serving.settings import PREFIX, TIMES, EngineSettings, Settings
from latentbandits.serving.stores import open_store
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
    """Return every family of metrics, collected from a service that has answered a request."""
    metrics = Metrics()
    metrics.routes["/v1/decide"].statuses[201] = 1
    engine = Engine(open_store("memory"), EngineSettings(policy="mmTS", holdout_share=0.5))
    with engine.transaction():
        engine.activate(pack(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5), "model"))
    with engine.transaction():
        for number in range(20):
            decided = engine.decide(DecisionRequest(f"session {number}", length=2))
            rewards = dict.fromkeys(decided.shown, 1.0)
            engine.reward(RewardReport(decided.decision_id, values=rewards))
    with engine.transaction():
        return [
            *metrics.collect(waiting=0, most_waiting=0, store_works=True),
            *totals_as_metrics(engine),
        ]


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
