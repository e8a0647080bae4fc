"""The logic of both clients, without a service: what is sent again, when, and what comes of it."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest

from latentbandits.client_protocol import (
    Conversation,
    Conversations,
    NoAnswerError,
    Pause,
    Reply,
    Send,
    ServiceError,
    retry_after,
)
from latentbandits.serving.http.messages import DecideRequest, RewardRequest

DECIDED = {
    "decision_id": "1", "action": "a", "index": 0, "propensity": 0.5, "propensity_kind": "exact",
    "state_probabilities": [1.0], "model": "m", "policy": "mmTS", "round": 1,
}  # fmt: skip


def reply(status: int, body: object = None, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, named, json.dumps(body).encode())


def error(status: int, code: str, **headers: str) -> Reply:
    return reply(status, {"error": {"code": code, "message": "m"}}, **headers)


LOST = Reply(0, {}, b"ConnectError: gone")


def hold(conversation: Conversation[Any], replies: list[Reply]) -> tuple[Any, list[Send | Pause]]:
    """The answer or the error, and all that was said."""
    steps: list[Send | Pause] = []
    waiting = iter(replies)
    last = LOST
    step = next(conversation)
    while True:
        steps.append(step)
        if isinstance(step, Send):
            last = next(waiting)
        try:
            step = conversation.send(last)
        except StopIteration as end:
            return end.value, steps
        except ServiceError as problem:
            return problem, steps


def sent(steps: list[Send | Pause]) -> list[Send]:
    return [step for step in steps if isinstance(step, Send)]


def test_a_lost_answer_is_asked_for_with_the_same_id() -> None:
    answer, steps = hold(
        Conversations().decide("s"), [LOST, error(504, "unknown"), reply(201, DECIDED)]
    )
    assert answer.action == "a"
    bodies = {send.body for send in sent(steps)}
    assert len(sent(steps)) == 3
    assert len(bodies) == 1
    assert json.loads(bodies.pop() or b"")["request_id"]


def test_a_decision_names_the_actions_that_are_not_eligible() -> None:
    _, steps = hold(Conversations().decide("s", exclude=("a", "b")), [reply(201, DECIDED)])
    body = json.loads(sent(steps)[0].body or b"")
    assert body["exclude"] == ["a", "b"]
    _, steps = hold(Conversations().decide("s"), [reply(201, DECIDED)])
    assert json.loads(sent(steps)[0].body or b"")["exclude"] is None


@pytest.mark.parametrize("method", ["forget", "activate"])
def test_admin_calls_repeat_their_request_id(method: str) -> None:
    answers = {
        "forget": {"session": "s", "sessions": 1},
        "activate": {"active": "m", "models": [], "swaps": []},
    }
    conversation = getattr(Conversations(), method)("s")
    _, steps = hold(conversation, [LOST, reply(200, answers[method])])
    first, second = sent(steps)
    assert first == second
    assert "request_id" in first.path + (first.body or b"").decode()


def test_retry_after_is_honoured() -> None:
    told = [error(429, "rate", retry_after="3"), error(503, "busy", retry_after="2")]
    answer, steps = hold(Conversations().decide("s"), [*told, reply(201, DECIDED)])
    assert answer.round == 1
    pauses = [step.seconds for step in steps if isinstance(step, Pause)]
    assert pauses == [3.0, 2.0]


def test_no_call_waits_beyond_its_deadline() -> None:
    busy = error(503, "busy", retry_after="30")
    answer, steps = hold(
        Conversations(deadline=0.8).decide("s", ["a", "b"], default="b"), [busy] * 9
    )
    assert (answer.action, answer.fallback, answer.index) == ("b", True, 1)
    assert len(steps) == 1
    answer, steps = hold(Conversations(deadline=29).reward("1", 1.0), [busy] * 9)
    assert (answer.status, len(steps)) == (503, 1)
    answer, steps = hold(Conversations(deadline=31, retries=1).reward("1", 1.0), [busy] * 9)
    assert (answer.status, len(sent(steps))) == (503, 2)


def test_all_attempts_of_a_call_share_one_deadline() -> None:
    begun = time.monotonic()
    _, steps = hold(Conversations(deadline=5.0).models(), [LOST] * 9)
    ends = {send.until for send in sent(steps)}
    assert len(ends) == 1
    assert begun + 5.0 <= ends.pop() <= time.monotonic() + 5.0
    conversation = Conversations(deadline=0.01).decide("s", default="b")
    next(conversation)
    time.sleep(0.02)
    with pytest.raises(StopIteration) as end:
        conversation.send(LOST)
    assert end.value.value.fallback


def test_what_stays_wrong_is_not_asked_again() -> None:
    for status in (400, 401, 403, 404, 409, 413, 422):
        problem, steps = hold(
            Conversations().decide("s", ["a"], default="a"), [error(status, "no")]
        )
        assert (problem.status, problem.code, len(steps)) == (status, "no", 1)


def test_attempts_end() -> None:
    problem, steps = hold(Conversations(retries=2).models(), [LOST] * 9)
    assert isinstance(problem, NoAnswerError)
    assert len(sent(steps)) == 3


def test_batches_of_any_size_come_in_hundreds() -> None:
    def answered(n: int) -> Reply:
        return reply(200, [{"error": {"code": "no", "message": "m"}}, *[DECIDED] * (n - 1)])

    answers, steps = hold(
        Conversations().decide_many([{"session": f"s{i}"} for i in range(250)]),
        [answered(100), answered(100), answered(50)],
    )
    sizes = [len(json.loads(send.body or b"")) for send in sent(steps)]
    assert sizes == [100, 100, 50]
    assert [isinstance(answers[i], ServiceError) for i in (0, 1, 100, 249)] == [
        True, False, True, False,
    ]  # fmt: skip
    ids = {item["request_id"] for send in sent(steps) for item in json.loads(send.body or b"")}
    assert len(ids) == 250


def test_batches_take_requests_mappings_and_pairs() -> None:
    decide = [DecideRequest("a", ["x"]), {"session": "b", "actions": ["x"]}, ("c", ("x",))]
    _, steps = hold(Conversations().decide_many(iter(decide)), [reply(200, [DECIDED] * 3)])
    items = json.loads(sent(steps)[0].body or b"")
    assert [(item["session"], item["actions"]) for item in items] == [(s, ["x"]) for s in "abc"]
    rewards = [RewardRequest("a", 1.0), {"decision_id": "b", "value": 1, "event_id": "e"}, ("c", 1)]
    _, steps = hold(Conversations().reward_many(iter(rewards)), [reply(200, [{}] * 3)])
    items = json.loads(sent(steps)[0].body or b"")
    assert [(i["decision_id"], i["value"]) for i in items] == [("a", 1.0), ("b", 1.0), ("c", 1.0)]
    assert [item["event_id"] for item in items] == [None, "e", None]


@pytest.mark.parametrize("method", ["decide_many", "reward_many"])
@pytest.mark.parametrize("item", ["ab", ("a",), ("a", "b", "c"), 7, None])
def test_batches_name_the_item_of_another_shape(method: str, item: object) -> None:
    good = {"decide_many": {"session": "a"}, "reward_many": ("a", 1.0)}[method]
    with pytest.raises(TypeError, match=r"item 1 must be a \w+Request, a mapping .* or a pair"):
        next(getattr(Conversations(), method)([good, item]))
    with pytest.raises(msgspec.ValidationError, match=r"item 1: .*required field"):
        next(getattr(Conversations(), method)([good, {}]))


def test_what_is_nested_without_end() -> None:
    deep = b'{"x":' + b"[" * 100_000
    problem, _ = hold(Conversations().decide("s"), [Reply(201, {}, deep)])
    assert isinstance(problem, NoAnswerError)
    problem, _ = hold(Conversations().decide("s"), [Reply(422, {}, deep)])
    assert (problem.status, problem.code) == (422, "http")
    answer, _ = hold(Conversations().decide("s", default="a"), [Reply(201, {}, deep)])
    assert answer.fallback
    itself: dict[str, Any] = {}
    itself["itself"] = itself
    with pytest.raises(ValueError, match="contains itself"):
        next(Conversations().decide("s", features=itself))
    with pytest.raises(ValueError, match="contains itself"):
        next(Conversations().add_action("s", attributes=itself))


def test_answers_that_make_no_sense() -> None:
    for body in (b"<html>", b"{}", b""):
        problem, _ = hold(Conversations().decide("s"), [Reply(201, {}, body)])
        assert isinstance(problem, NoAnswerError)
    problem, _ = hold(Conversations(retries=0).decide("s"), [Reply(502, {}, b"<html>")])
    assert (problem.status, problem.code) == (502, "http")


def test_dots_are_quoted() -> None:
    paths = {}
    for name in (".", "..", "a/../b", "a b?"):
        paths[name] = next(Conversations().session(name)).path  # type: ignore[union-attr]
    assert paths == {
        ".": "/v1/sessions/%2E", "..": "/v1/sessions/%2E%2E",
        "a/../b": "/v1/sessions/a%2F%2E%2E%2Fb", "a b?": "/v1/sessions/a%20b%3F",
    }  # fmt: skip


def test_dates_of_retry_after() -> None:
    assert retry_after({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}) == 0.0
    assert retry_after({"retry-after": "Fri, 31 Dec 2100 23:59:59 GMT"}) > 1e9
