"""Reward tokens: a signed permission to report the reward of one decision, for web pages.

A page in a browser must not hold a key. `decide` can return a token with the decision, made on the
server side; whoever holds it may report that decision's one reward until it expires, and nothing
else. A token is an expiry time and an HMAC-SHA256 of that time and the decision's id (RFC 2104)
with a secret of the store, so that every process that shares the store accepts it.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable

from latentbandits.serving.http.messages import NotAdmitted

_BYTES = 18  # of the signature: 144 bits


class RewardTokens:
    """Signs and checks tokens; `clock` gives milliseconds.

    >>> tokens = RewardTokens(b"secret", seconds=60, clock=lambda: 0)
    >>> token = tokens.sign("d1")
    >>> tokens.check("d1", token)
    """

    def __init__(self, secret: bytes, seconds: float, clock: Callable[[], int]) -> None:
        self._secret = secret
        self._seconds = seconds
        self._clock = clock

    def sign(self, decision_id: str) -> str:
        """Return a token for the reward of a decision."""
        expiry = f"{int(self._clock() / 1000 + self._seconds):x}"
        return f"{expiry}.{self._signature(decision_id, expiry)}"

    def check(self, decision_id: str, token: str) -> None:
        """Refuse a token that is not of this decision, was changed, or has expired."""
        expiry, _, signature = token.partition(".")
        signed = self._signature(decision_id, expiry)
        told = signature.encode("utf-8", "surrogatepass")
        if not hmac.compare_digest(told, signed.encode()):
            raise NotAdmitted(403, "token", "this is not a reward token of this decision")
        if self._clock() / 1000 > int(expiry, 16):
            raise NotAdmitted(
                403, "token", f"the reward token has expired: it held for {self._seconds:g} s"
            )

    def _signature(self, decision_id: str, expiry: str) -> str:
        text = f"{expiry}\n{decision_id}".encode("utf-8", "surrogatepass")
        digest = hmac.digest(self._secret, text, "sha256")
        return base64.urlsafe_b64encode(digest[:_BYTES]).decode()
