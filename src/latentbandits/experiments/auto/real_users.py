"""The recommended policy on real ratings of users who were not learned from.

A fifth of the users is set aside. `fit` learns from the others, and recommends a policy by its own
held-out users. That policy, `auto`, is then compared with popularity on the users that were set
aside (`learning/replay.py`): both rank films that the user has rated, and receive the rating.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from latentbandits.learning import fit, user_hash
from latentbandits.learning.logs import Log, read_log
from latentbandits.learning.replay import (
    HORIZONS,
    Player,
    PolicyPlayer,
    Replay,
    ScorePlayer,
    action_averages,
    replay,
)
from latentbandits.policies.registry import Inputs, build, parse
from latentbandits.report.progress import Progress
from latentbandits.report.report import Claim

AUTO, POPULARITY = "auto", "popularity"
BESIDE = ("mmGreedy", "mmTS")
"""Further policies on the same model that are played."""

_SET_ASIDE = 0.2
_SEED = 100  # added to the experiment's seed, so that `fit` holds out other users


class Played(NamedTuple):
    """The recommendation of `fit`, and the rewards of the users that were set aside."""

    auto: str
    replay: Replay


def movielens_1m(folder: str | None) -> Log:
    """Return the ratings of MovieLens 1M as a log."""
    import polars

    from latentbandits.experiments.movielens.data import find_folder, load

    data = load(find_folder(folder))
    frame = polars.DataFrame(
        {
            "user": data.user_ids[data.users],
            "action": data.movie_ids[data.movies],
            "reward": data.ratings,
        }
    )
    return read_log(frame, "user", "action", "reward")


def movielens_small(folder: str | None) -> Log:
    """Return the ratings of MovieLens latest-small as a log."""
    place = small_folder(folder)
    if place is None:
        raise ValueError(
            "MovieLens latest-small was not found: give the folder of its ratings.csv as --small"
        )
    return read_log(place / "ratings.csv", "userId", "movieId", "rating", order="timestamp")


def small_folder(folder: str | None, beside: str | None = None) -> Path | None:
    """Return the folder of MovieLens latest-small; by default it is next to MovieLens 1M."""
    place = Path(folder) if folder else None
    if place is None and beside is not None:
        place = Path(beside).parent / "ml-latest-small"
    return place if place is not None and (place / "ratings.csv").is_file() else None


def real_logs(data: str | None, small: str | None) -> Mapping[str, Callable[[], Log]]:
    """Return, by problem name, functions that read each log."""
    folder = small_folder(small, data)
    logs: dict[str, Callable[[], Log]] = {"replay movielens-1m": partial(movielens_1m, data)}
    if small is not None or folder is not None:
        logs["replay movielens-latest-small"] = partial(
            movielens_small, small if folder is None else str(folder)
        )
    return logs


def play_real_users(log: Log, seed: int, progress: Progress | None = None) -> Played:
    """Fit to four fifths of the users, and play the recommended policy on the others."""
    keys = user_hash.user_keys(log.user_ids)
    aside = user_hash.held_out(keys, round(_SET_ASIDE * log.n_users), seed + _SEED)
    train, users = (log.of_users(np.flatnonzero(part)) for part in (~aside, aside))
    result = fit(train, bootstrap=0, seed=seed, progress=progress)
    auto = result.report["judgement"]["recommended_policy"]
    features: Any = result.catalogue.features
    low, high = float(train.rewards.min()), float(train.rewards.max())
    inputs = Inputs(result.model, reward_range=(low, high), items=features)
    known = np.bincount(train.actions, minlength=log.n_actions) > 0
    users = users.of_events(known[users.actions])
    averages = ScorePlayer(action_averages(train))
    players: dict[str, Player] = {POPULARITY: averages}
    for name, text in {AUTO: auto, **{text: text for text in BESIDE}}.items():
        players[name] = (
            averages
            if parse(text).name == POPULARITY
            else PolicyPlayer(build(text, inputs), log.n_actions, features)
        )
    return Played(auto, replay(players, users, seed=seed, progress=progress))


def not_below_popularity(name: str, played: Played) -> list[Claim]:
    """Return a claim per horizon: auto is at most one standard error below popularity."""
    claims = []
    for horizon in played.replay.horizons:
        lead = played.replay.difference(AUTO, POPULARITY, horizon)
        claims.append(
            Claim(
                f"A {name}, {horizon} rounds",
                f"on real ratings of {played.replay.n_users(horizon)} held-out users auto, "
                f"{played.auto}, is not below popularity",
                f"reward of auto - popularity >= {-lead.stderr:.2g} (one standard error)",
                f"{lead:+}",
                lead.mean >= -lead.stderr,
            )
        )
    return claims


def replay_rows(name: str, played: Played) -> list[tuple[str, ...]]:
    """Return the table's rows: the reward of each policy and its lead over popularity."""
    replay = played.replay
    return [
        (
            name,
            policy if policy != AUTO else f"auto: {played.auto}",
            *(
                f"{replay.reward(policy, h).mean:.3f} "
                f"({replay.difference(policy, POPULARITY, h):+})"
                if h in replay.horizons
                else "too few users"
                for h in HORIZONS
            ),
        )
        for policy in replay.rewards
    ]
