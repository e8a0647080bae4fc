"""Experiment groups: which policy a session gets."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

MAIN, HOLDOUT = "policy", "holdout"


class Group(NamedTuple):
    """A share of all sessions that gets a policy of its own."""

    name: str
    policy: str
    share: float


def parse_groups(text: str) -> tuple[Group, ...]:
    """Return the groups of a text "name=policy:share; name=policy:share".

    >>> parse_groups("greedy=mmGreedy:0.1; popular=uniform:0.05")[0]
    Group(name='greedy', policy='mmGreedy', share=0.1)
    """
    groups = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, rest = part.partition("=")
        policy, colon, share = rest.rpartition(":")
        try:
            number = float(share)
        except ValueError:
            number = -1.0
        if not (equals and colon and name.strip() and 0 <= number <= 1):
            raise ValueError(f"{part!r} is not a group: give NAME=POLICY:SHARE, as in a=mTS:0.1")
        groups.append(Group(name.strip(), policy.strip(), number))
    return tuple(groups)


def group_of(session: str, salt: bytes, groups: Sequence[Group]) -> str:
    """Return the group of a session: by a salted hash, so the same in every process.

    `groups` are those beside the main one, which gets the rest.

    >>> group_of("ann", b"salt", []), group_of("ann", b"salt", [Group("all", "mTS", 1.0)])
    ('policy', 'all')
    """
    digest = hashlib.blake2b(session.encode(), digest_size=8, key=salt[:64]).digest()
    place = int.from_bytes(digest, "big") / 2.0**64
    end = 0.0
    for group in groups:
        end += group.share
        if place < end:
            return group.name
    return MAIN
