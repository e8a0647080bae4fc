"""Replay of one user as a plain loop: lists, no arrays of users."""

from __future__ import annotations

import numpy as np


def replay_user(rows, n_rounds, offered, uniforms, choose):
    """Rewards of one user.

    `rows` are (action, reward) pairs; `uniforms[t]` are the random numbers of round t's offers;
    `choose(actions)` returns the index of the action to show.
    """
    left = list(rows)
    earned = []
    for t in range(n_rounds):
        size = min(offered, len(left))
        for place in range(size):  # Fisher-Yates
            if len(left) - place > 1:
                other = place + int(uniforms[t][place] * (len(left) - place))
                left[place], left[other] = left[other], left[place]
        chosen = choose([action for action, _ in left[:size]])
        earned.append(left[chosen][1])
        left[chosen] = left[-1]
        left.pop()
    return np.array(earned)
