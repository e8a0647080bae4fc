"""Stable hashes of user ids, for hold-out, summation buckets and bootstrap weights.

All three depend on a hash of the id, not on the position in a table. So any engine that reads the
same log, in any order and in any number of parts, holds out the same users and adds the same sums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from latentbandits.models.checks import BoolArray, FloatArray, IntArray
from latentbandits.models.numerics import arrays

Keys = arrays.Keys

MOST_BUCKETS = 256
USERS_OF_A_BUCKET = 2048  # fewer make sums by action dear, more leave threads idle

HOLD_OUT, BUCKET, BOOTSTRAP, SAMPLE, CROSS_FIT = 1, 2, 3, 4, 5
"""Purposes of hashes: hashes for different purposes are independent."""


def user_keys(ids: Sequence[str]) -> Keys:
    """Return a 64-bit hash of every id, `(n_users,)`: BLAKE2b, the same on every machine.

    >>> user_keys(["ann", "bob"])
    array([11957940740637538957, 10566683571197309812], dtype=uint64)
    """
    digests = b"".join(hashlib.blake2b(i.encode(), digest_size=8).digest() for i in ids)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def held_out(keys: Keys, n_held_out: int, seed: int) -> BoolArray:
    """Mark the `n_held_out` users whose hashes with `seed` are smallest.

    >>> held_out(user_keys(["a", "b", "c"]), 1, seed=0).tolist()
    [False, False, True]
    """
    hashes = mix(keys, seed, HOLD_OUT)
    marked = np.zeros(len(keys), np.bool_)
    marked[np.argsort(hashes, kind="stable")[:n_held_out]] = True
    return marked


def sample(keys: Keys, size: int, seed: int) -> IntArray:
    """Return the indices of `size` users chosen by hash, ascending; all where there are fewer."""
    if size >= len(keys):
        return np.arange(len(keys))
    return np.sort(np.argsort(mix(keys, seed, SAMPLE), kind="stable")[:size])


def bucket_count(n_users: int) -> int:
    """Return the number of summation buckets for the users of a log: a power of two up to 256.

    >>> bucket_count(100), bucket_count(20_000), bucket_count(10_000_000)
    (1, 8, 256)
    """
    wanted = max(1, n_users // USERS_OF_A_BUCKET)
    return min(MOST_BUCKETS, 1 << (wanted.bit_length() - 1))


def buckets(keys: Keys, n_buckets: int) -> IntArray:
    """Return the bucket of every user, `(n_users,)`."""
    return (mix(keys, 0, BUCKET) % np.uint64(n_buckets)).astype(np.int64)


def bootstrap_weights(keys: Keys, n_replicates: int, seed: int) -> FloatArray:
    """Return Poisson(1) weights of every user in every replicate, `(n_users, n_replicates)`.

    A weight depends on the user's key, the replicate and `seed` alone.
    """
    from scipy.special import pdtr

    edges = pdtr(np.arange(12), 1.0)
    weights = np.empty((len(keys), n_replicates))
    for i in range(n_replicates):
        uniform = mix(keys, seed * 1_000_003 + i, BOOTSTRAP).astype(np.float64) / 2.0**64
        weights[:, i] = np.searchsorted(edges, uniform, side="right")
    return weights


def mix(keys: Keys, seed: int, purpose: int) -> Keys:
    """Hash keys together with a seed and a purpose (the finaliser of SplitMix64, twice)."""
    salt = np.array([seed % 2**63, purpose], np.uint64)
    with np.errstate(over="ignore"):
        state = arrays.mix(salt[:1] * np.uint64(0x9E3779B97F4A7C15) + salt[1:])
        return arrays.mix(keys ^ state)
