"""The OpenFeature provider: the real SDK against a real service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import FlagEvaluationDetails, Reason
from openfeature.track import TrackingEventDetails

from latentbandits import BernoulliArms, save
from latentbandits.client import Client, ServiceError
from latentbandits.models.artefacts import Catalogue
from latentbandits.openfeature import LatentBanditsProvider
from tests.processes.service import RunningService, run_command

ACTIONS = ["red", "blue", "green"]
FLAGS = {
    "banner": ACTIONS,
    "new-button": {"red": True, "blue": False},
    "size": {"red": 12, "green": 16},
    "rate": {"red": 0.5, "blue": 1.5},
    "layout": {"red": {"columns": 2}, "blue": {"columns": 3}},
    "unknown-action": ["red", "purple"],
}
ANN = EvaluationContext("ann")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "openfeature.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the model."""
    path = tmp_path_factory.mktemp("openfeature")
    model = BernoulliArms.from_means([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]], 0.1)
    save(model, path / "model", catalogue=Catalogue(ACTIONS))
    return path


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[RunningService]:
    with RunningService(folder / "model", folder=folder) as running:
        yield running


@pytest.fixture
def client(service: RunningService) -> Iterator[Client]:
    with Client(service.url, deadline=3.0) as client:
        yield client
        with contextlib.suppress(ServiceError):  # where the test stored no session
            client.forget("ann")


@pytest.fixture
def flags(client: Client) -> Iterator[OpenFeatureClient]:
    api.set_provider(LatentBanditsProvider(client, FLAGS, ["reward", "bought"]), "tests")
    yield api.get_client("tests")
    api.clear_providers()


def test_a_flag_is_a_decision(flags: OpenFeatureClient, client: Client) -> None:
    details = flags.get_string_details("banner", "none", ANN)
    [event] = client.session("ann").history
    assert details.value == details.variant == event.action
    assert details.error_code is None
    assert details.reason == Reason.SPLIT
    assert details.flag_metadata == {
        "decision_id": event.decision_id,
        "propensity": event.propensity,
        "propensity_kind": event.propensity_kind,
        "model": event.model,
        "round": 1,
    }


def test_flags_of_every_type(flags: OpenFeatureClient) -> None:
    assert flags.get_boolean_value("new-button", False, ANN) in (True, False)
    assert flags.get_integer_value("size", 0, ANN) in (12, 16)
    assert flags.get_float_value("rate", 0.0, ANN) in (0.5, 1.5)
    assert flags.get_object_value("layout", {}, ANN) in ({"columns": 2}, {"columns": 3})
    assert asyncio.run(flags.get_integer_value_async("size", 0, ANN)) in (12, 16)
    details = flags.get_boolean_details("new-button", False, ANN)
    assert details.value == {"red": True, "blue": False}[details.variant or ""]


def test_the_same_request_is_the_same_decision(flags: OpenFeatureClient) -> None:
    once = EvaluationContext("ann", {"request_id": "page 7"})
    first, again = (flags.get_string_details("banner", "none", once) for _ in range(2))
    other = flags.get_string_details("banner", "none", ANN)
    assert first.flag_metadata == again.flag_metadata
    assert first.flag_metadata["decision_id"] != other.flag_metadata["decision_id"]


def test_tracking_sends_the_reward(flags: OpenFeatureClient, client: Client) -> None:
    earlier = flags.get_string_details("banner", "none", ANN)
    flags.get_string_value("banner", "none", ANN)
    flags.track("page view", ANN)
    flags.track("bought", ANN)  # without a value: 1, for the last decision
    named = {"decision_id": str(earlier.flag_metadata["decision_id"])}
    flags.track("reward", ANN, TrackingEventDetails(0.0, {**named}))
    assert [event.reward for event in client.session("ann").history] == [0.0, 1.0]


def test_rewards_that_cannot_be_sent_are_logged(
    flags: OpenFeatureClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        flags.track("reward", EvaluationContext("nobody"))
        flags.track("reward", ANN, TrackingEventDetails(1.0, {"decision_id": "0" * 32}))
    first, second = (record.getMessage() for record in caplog.records)
    assert "got the targeting key 'nobody'" in first
    assert "was not sent: 404 not_found" in second


def evaluated(flags: OpenFeatureClient, flag: str) -> FlagEvaluationDetails[str]:
    return flags.get_string_details(flag, "default", ANN)


def test_errors_have_the_codes_of_openfeature(flags: OpenFeatureClient) -> None:
    missing = flags.get_string_details("banner", "default")
    assert (missing.value, missing.error_code) == ("default", ErrorCode.TARGETING_KEY_MISSING)
    assert missing.reason == Reason.ERROR
    assert evaluated(flags, "other").error_code == ErrorCode.FLAG_NOT_FOUND
    assert evaluated(flags, "new-button").error_code == ErrorCode.TYPE_MISMATCH
    assert flags.get_integer_details("new-button", 0, ANN).error_code == ErrorCode.TYPE_MISMATCH
    refused = evaluated(flags, "unknown-action")
    assert refused.error_code == ErrorCode.GENERAL
    assert "no action 'purple'" in (refused.error_message or "")


def test_a_service_that_is_gone_gives_the_default(folder: Path) -> None:
    with (
        RunningService(folder / "model", folder=folder) as running,
        Client(running.url, deadline=1.0) as client,
    ):
        api.set_provider(LatentBanditsProvider(client, FLAGS), "gone")
        assert evaluated(api.get_client("gone"), "banner").error_code is None
        running.kill()
        away = evaluated(api.get_client("gone"), "banner")
        api.clear_providers()
    assert (away.value, away.error_code) == ("default", ErrorCode.PROVIDER_NOT_READY)


def test_a_key_that_is_refused_is_fatal(folder: Path) -> None:
    keys = folder / "keys.toml"
    assert run_command("key", "shop", "--keys", keys, "--scopes", "decide").returncode == 0
    with (
        RunningService(folder / "model", "--keys", keys, folder=folder) as running,
        Client(running.url, "wrong") as client,
    ):
        api.set_provider(LatentBanditsProvider(client, FLAGS), "wrong key")
        details = evaluated(api.get_client("wrong key"), "banner")
        api.clear_providers()
    assert (details.value, details.error_code) == ("default", ErrorCode.PROVIDER_FATAL)


@pytest.mark.parametrize("actions", ["red", [], {}])
def test_a_flag_without_actions_is_refused(client: Client, actions: object) -> None:
    with pytest.raises(ValueError, match="flag 'banner' needs a list of action ids"):
        LatentBanditsProvider(client, {"banner": actions})  # type: ignore[dict-item]


def test_the_code_of_the_page_runs(
    service: RunningService, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    [code] = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code.count("http://127.0.0.1:8000") == 1
    code = code.replace("http://127.0.0.1:8000", service.url).replace("deadline=0.2", "deadline=3")
    names: dict[str, object] = {}
    exec(compile(code, PAGE.name, "exec"), names)
    api.clear_providers()
    [event] = client.session("ann").history
    assert capsys.readouterr().out == f"{event.action} {event.propensity}\n"
    assert event.reward == 1.0
    page_client = names["client"]
    assert isinstance(page_client, Client)
    page_client.close()
