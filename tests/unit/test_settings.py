"""Settings come from flags, a file and the environment; a wrong one is named with its value."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentbandits.cli.serve import GROUPS
from latentbandits.options import duration, in_words
from latentbandits.serving.settings import TIMES, Settings, gather


@pytest.mark.parametrize("text", [".2", "0.2", "2e-1", "+.2"])
def test_numbers_are_read_as_people_write_them(text: str) -> None:
    assert gather({"explore": text}, None, {}).explore == 0.2
    assert gather({}, None, {"LATENTBANDITS_EXPLORE": text}).explore == 0.2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("90s", 90.0),
        ("15m", 900.0),
        ("1.5h", 5400.0),
        ("30d", 30 * 86400.0),
        ("1e3", 1e3),
    ],
)
def test_times_have_units_or_are_seconds(text: str, seconds: float, tmp_path: Path) -> None:
    assert gather({"request_timeout": text}, None, {}).request_timeout == seconds
    assert gather({}, None, {"LATENTBANDITS_REQUEST_TIMEOUT": text}).request_timeout == seconds
    (tmp_path / "c.toml").write_text(f'request_timeout = "{text}"\nbody_timeout = 7\n')
    settings = gather({}, str(tmp_path / "c.toml"), {})
    assert (settings.request_timeout, settings.body_timeout) == (seconds, 7.0)
    assert duration(text).total_seconds() == seconds
    assert duration(in_words(seconds)).total_seconds() == seconds


def test_every_setting_has_its_place_in_the_help() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(Settings.__struct_fields__)
    named = {name for name in listed if "timeout" in name}
    assert named | {"session_ttl", "retention", "drain", "reward_token_seconds"} == TIMES


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"explore": "a lot"}, "the setting explore must be a number; got 'a lot'"),
        ({"session_ttl": "30 days"}, "session_ttl must be a time such as 30s, 15m, 2h or 30d"),
        ({"session_ttl": "-5"}, "the setting session_ttl -5.0 is wrong: Expected `float` > 0.0"),
        ({"explore": "nan"}, "the setting explore must be a finite number; got 'nan'"),
        ({"explore": "1.5"}, r"the setting explore 1\.5 is wrong: Expected `float` <= 1\.0"),
        ({"port": "eighty"}, "the setting port 'eighty' is wrong: Expected `int`, got `str`"),
        ({"port": "70000"}, "the setting port '70000' is wrong: Expected `int` <= 65535"),
        ({"log_level": "loud"}, "the setting log_level 'loud' is wrong: Invalid enum value"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(flags: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gather(flags, None, {})
