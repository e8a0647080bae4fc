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


def arrival(sessions):
    """P(the reward comes | action, round) as a function: shares, each with its prior as one row."""
    rows = [
        (step["action"], t, not math.isnan(step["reward"]))
        for session in sessions
        for t, step in enumerate(session)
    ]
    overall = sum(came for _, _, came in rows) / len(rows)

    def chance(action, t):
        of_action = [came for a, _, came in rows if a == action]
        of_cell = [came for a, u, came in rows if (a, u) == (action, t)]
        share = (sum(of_action) + overall) / (len(of_action) + 1)
        return (sum(of_cell) + share) / (len(of_cell) + 1)

    return chance if overall < 1 else lambda action, t: 1.0


def estimate(sessions, name):
    """The value of every round, from dictionaries with pi, mu, action, reward, q."""
    rho, chance = weights(sessions), arrival(sessions)
    longest = len(rho[0])
    values = []
    for t in range(longest):
        top = bottom = direct = direct_weight = 0.0
        for i, session in enumerate(sessions):
            before = rho[i][t - 1] if t else 1.0
            direct_weight += before
            if t < len(session):
                step = session[t]
                direct += before * sum(p * q for p, q in zip(step["pi"], step["q"], strict=True))
                q = step["q"][step["action"]]
                came = 0.0
                residual = 0.0
                if not math.isnan(step["reward"]):
                    came = 1 / chance(step["action"], t)
                    residual = came * (step["reward"] - q)
                top += rho[i][t] * (residual if name in ("DR", "SNDR") else q + residual)
                bottom += rho[i][t] * (came if name == "SNDR" else 1)
            else:
                bottom += rho[i][t]
        n = len(sessions)
        if name == "IPS":
            values.append(top / n)
        elif name == "SNIPS":
            values.append(top / bottom)
        elif name == "DR":
            values.append(top / n + direct / n)
        else:
            values.append(top / bottom + direct / direct_weight)
    return values
