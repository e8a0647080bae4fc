"""Settings come from flags, a file and the environment; a wrong one is named with its value."""

from __future__ import annotations

import pytest

from latentbandits.serving.settings import gather


@pytest.mark.parametrize("text", [".2", "0.2", "2e-1", "+.2"])
def test_numbers_are_read_as_people_write_them(text: str) -> None:
    assert gather({"explore": text}, None, {}).explore == 0.2
    assert gather({}, None, {"LATENTBANDITS_EXPLORE": text}).explore == 0.2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"explore": "a lot"}, "the setting explore must be a number; got 'a lot'"),
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
