"""A provider for OpenFeature: flags of an application are resolved by a decision service.

A flag is a set of actions. Resolving it asks the service to decide for the session that the
targeting key names; the variant is the action. Tracking an event reports the reward.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from latentbandits.client import Client, NoAnswerError, ServiceError
from latentbandits.extras import needed_by

with needed_by("latentbandits.openfeature"):
    from openfeature.evaluation_context import EvaluationContext
    from openfeature.exception import (
        FlagNotFoundError,
        GeneralError,
        ProviderFatalError,
        ProviderNotReadyError,
        TargetingKeyMissingError,
        TypeMismatchError,
    )
    from openfeature.flag_evaluation import (
        FlagMetadata,
        FlagResolutionDetails,
        FlagValueType,
        Reason,
    )
    from openfeature.provider import AbstractProvider, Metadata
    from openfeature.track import TrackingEventDetails

__all__ = ["LatentBanditsProvider"]

P = ParamSpec("P")
Details = TypeVar("Details")
_log = logging.getLogger(__name__)
_REMEMBERED = 10_000  # sessions whose latest decision is remembered
_KEY_REFUSED = (401, 403)


def _resolver(*kinds: type) -> Callable[..., FlagResolutionDetails[Any]]:
    """Return the method that resolves flags whose values have one of these types."""

    def resolve(
        self: LatentBanditsProvider,
        flag_key: str,
        default_value: Any,
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[Any]:
        return self._resolve(flag_key, kinds, evaluation_context)

    return resolve


def _in_thread(resolve: Callable[P, Details]) -> Callable[P, Coroutine[Any, Any, Details]]:
    """Return this method for an event loop, which another thread keeps free: the client waits."""

    @wraps(resolve)
    async def resolve_async(*arguments: P.args, **options: P.kwargs) -> Details:
        return await asyncio.to_thread(resolve, *arguments, **options)

    return resolve_async


class LatentBanditsProvider(AbstractProvider):
    """Resolves flags by the decisions of a service.

    Args:
        client: sends the requests. The provider does not close it.
        flags: the eligible actions of each flag: a list of ids, which are the flag's values, or
            the value of each id.
        reward_events: names of the tracked events that are rewards; others are ignored.

    An evaluation needs a targeting key, which is the session. The context's attribute
    `request_id` makes an evaluation repeatable: the same id again gives the same decision.
    The flag's metadata has `decision_id`, `propensity` (where it is known), `propensity_kind`,
    `model` and `round`.

    An event's value is the reward, 1 if it has none. It is the reward of the decision that its
    attribute `decision_id` names; without one, of the last decision for its targeting key that this
    provider made. A reward that cannot be sent is logged as a warning and raises nothing.

    >>> from openfeature import api
    >>> from openfeature.evaluation_context import EvaluationContext
    >>> client = Client("http://127.0.0.1:1", deadline=0.1)  # where no service is
    >>> api.set_provider(LatentBanditsProvider(client, {"banner": ["red", "blue"]}), "doctest")
    >>> flags = api.get_client("doctest")
    >>> details = flags.get_string_details("banner", "red", EvaluationContext("ann"))
    >>> details.value, details.error_code.value
    ('red', 'PROVIDER_NOT_READY')
    """

    def __init__(
        self,
        client: Client,
        flags: Mapping[str, Sequence[str] | Mapping[str, FlagValueType]],
        reward_events: Collection[str] = ("reward",),
    ) -> None:
        super().__init__()
        self._client = client
        self._flags: dict[str, dict[str, FlagValueType]] = {}
        for flag, actions in flags.items():
            if isinstance(actions, str) or not actions:
                raise ValueError(
                    f"flag {flag!r} needs a list of action ids, or a value for each id; "
                    f"got {actions!r}"
                )
            values = actions if isinstance(actions, Mapping) else {one: one for one in actions}
            self._flags[flag] = dict(values)
        self._reward_events = frozenset(reward_events)
        self._last: OrderedDict[str, str] = OrderedDict()  # decision ids by targeting key
        self._lock = threading.Lock()

    def get_metadata(self) -> Metadata:
        """Return the name of the provider."""
        return Metadata("latentbandits")

    # flags

    def _resolve(
        self, flag_key: str, kinds: tuple[type, ...], context: EvaluationContext | None
    ) -> FlagResolutionDetails[Any]:
        """Return the decision for a flag whose values must be of one of these types."""
        values = self._flags.get(flag_key)
        if values is None:
            known = ", ".join(map(repr, self._flags)) or "none"
            raise FlagNotFoundError(f"the provider has no flag {flag_key!r}; it has {known}")
        for action, value in values.items():
            if type(value) not in kinds:
                raise TypeMismatchError(f"flag {flag_key!r} has the value {value!r} for {action!r}")
        if context is None or not context.targeting_key:
            raise TargetingKeyMissingError(
                f"flag {flag_key!r} is decided for a session: give its id as the targeting key"
            )
        session = context.targeting_key
        request_id = context.attributes.get("request_id")
        try:
            decided = self._client.decide(
                session, list(values), request_id=None if request_id is None else str(request_id)
            )
        except NoAnswerError as error:
            raise ProviderNotReadyError(error.message) from error
        except ServiceError as error:
            if error.status in _KEY_REFUSED:
                raise ProviderFatalError(str(error)) from error
            if error.status >= 500 or error.status == 429:
                raise ProviderNotReadyError(str(error)) from error
            raise GeneralError(str(error)) from error
        self._remember(session, decided.decision_id)
        metadata: dict[str, bool | int | float | str] = {
            "decision_id": decided.decision_id,
            "propensity_kind": decided.propensity_kind,
            "model": decided.model,
            "round": decided.round,
        }
        if decided.propensity is not None:
            metadata["propensity"] = decided.propensity
        return FlagResolutionDetails(
            values[decided.action],
            reason=Reason.SPLIT,
            variant=decided.action,
            flag_metadata=cast(FlagMetadata, metadata),
        )

    def _remember(self, session: str, decision_id: str) -> None:
        with self._lock:
            self._last[session] = decision_id
            self._last.move_to_end(session)
            if len(self._last) > _REMEMBERED:
                self._last.popitem(last=False)

    resolve_boolean_details = _resolver(bool)
    resolve_string_details = _resolver(str)
    resolve_integer_details = _resolver(int)
    resolve_float_details = _resolver(float)
    resolve_object_details = _resolver(dict, list)
    resolve_boolean_details_async = _in_thread(resolve_boolean_details)
    resolve_string_details_async = _in_thread(resolve_string_details)
    resolve_integer_details_async = _in_thread(resolve_integer_details)
    resolve_float_details_async = _in_thread(resolve_float_details)
    resolve_object_details_async = _in_thread(resolve_object_details)

    # rewards

    def track(
        self,
        tracking_event_name: str,
        evaluation_context: EvaluationContext | None = None,
        tracking_event_details: TrackingEventDetails | None = None,
    ) -> None:
        """Report the reward of a decision, if the event is one of `reward_events`."""
        if tracking_event_name not in self._reward_events:
            return
        details = tracking_event_details or TrackingEventDetails()
        session = None if evaluation_context is None else evaluation_context.targeting_key
        decision_id = details.attributes.get("decision_id")
        if decision_id is None and session is not None:
            with self._lock:
                decision_id = self._last.get(session)
        if decision_id is None:
            _log.warning(
                "the event %r is no reward of a decision: give its attribute decision_id, or the "
                "targeting key of an evaluation by this provider; got the targeting key %r",
                tracking_event_name,
                session,
            )
            return
        try:
            self._client.reward(str(decision_id), 1.0 if details.value is None else details.value)
        except ServiceError as error:
            _log.warning("the reward of decision %s was not sent: %s", decision_id, error)
