"""Textbook loops of the off-policy estimators: one session and one round at a time."""

from __future__ import annotations

import math


def weights(sessions):
    """Rho of every session and round; an ended session keeps its last weight."""
    longest = max(len(s) for s in sessions)
    table = []
    for session in sessions:
        rho, row = 1.0, []
        for t in range(longest):
            if t < len(session):
                rho *= session[t]["pi"][session[t]["action"]] / session[t]["mu"]
            row.append(rho)
        table.append(row)
    return table


def estimate(sessions, name):
    """The value of every round, from dictionaries with pi, mu, action, reward, q."""
    rho = weights(sessions)
    longest = len(rho[0])
    values = []
    for t in range(longest):
        top = bottom = direct = direct_weight = 0.0
        n_counted = 0
        for i, session in enumerate(sessions):
            before = rho[i][t - 1] if t else 1.0
            direct_weight += before
            if t < len(session):
                step = session[t]
                direct += before * sum(p * q for p, q in zip(step["pi"], step["q"], strict=True))
                if math.isnan(step["reward"]):
                    continue
                base = step["q"][step["action"]] if name in ("DR", "SNDR") else 0.0
                top += rho[i][t] * (step["reward"] - base)
            bottom += rho[i][t]
            n_counted += 1
        n = len(sessions)
        if name == "IPS":
            values.append(top / n_counted)
        elif name == "SNIPS":
            values.append(top / bottom)
        elif name == "DR":
            values.append(top / n_counted + direct / n)
        else:
            values.append(top / bottom + direct / direct_weight)
    return values
