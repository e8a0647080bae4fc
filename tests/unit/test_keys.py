"""API keys: what a file may say, how it is read again, and how a rate is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentbandits.serving.http.keys import Caller, Keys, add_key


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_rate_lets_in_two_seconds_of_work_and_then_its_pace() -> None:
    clock = Clock()
    caller = Caller("web", ["decide"], rate=10.0, clock=clock)
    let_in = 0
    while caller.wait() == 0:
        caller.spend(1)
        let_in += 1
    assert let_in == 20
    assert caller.wait() == pytest.approx(0.0, abs=1e-6)  # a moment
    for _ in range(100):
        clock.now += 0.1
        assert caller.wait() == 0
        caller.spend(1)
    clock.now += 0.05
    assert caller.wait() == 0


def test_a_batch_leaves_a_debt() -> None:
    clock = Clock()
    caller = Caller("web", ["decide"], rate=10.0, clock=clock)
    assert caller.wait() == 0
    caller.spend(100)
    assert caller.wait() == pytest.approx(8.0)
    clock.now += 8.01
    assert caller.wait() == 0


def test_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.toml")
    first = add_key(file, "one", ["decide"])
    keys = Keys(file)
    assert keys.caller(first) is not None
    assert not keys.reload()
    second = add_key(file, "two", ["read"], sessions='shop "1"/', rate=2.5)
    assert keys.caller(second) is None
    assert keys.reload()
    caller = keys.caller(second)
    assert caller is not None
    assert (caller.sessions, caller.owns('shop "1"/ann'), caller.owns("shop")) == (
        'shop "1"/', True, False,
    )  # fmt: skip
    caller.spend(1000)
    Path(file).write_text("nonsense [")
    assert not keys.reload()
    assert keys.caller(first) is not None
    Path(file).unlink()
    assert not keys.reload()
    assert keys.caller(first) is not None


@pytest.mark.parametrize("left", ["", "# none\n"])
def test_the_last_key_can_be_removed(tmp_path: Path, left: str) -> None:
    file = str(tmp_path / "keys.toml")
    made = add_key(file, "one", ["decide"])
    keys = Keys(file)
    Path(file).write_text(left)
    assert keys.reload()
    assert keys.caller(made) is None
    with pytest.raises(ValueError, match="holds no keys"):
        Keys(file)


def test_a_key_keeps_its_debt_when_the_file_is_read_again(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.toml")
    made = add_key(file, "one", ["decide"], rate=1.0)
    keys = Keys(file)
    caller = keys.caller(made)
    assert caller is not None
    caller.spend(1000)
    assert keys.reload(force=True)
    again = keys.caller(made)
    assert again is not None
    assert again is not caller
    assert again.wait() > 900


def test_use_without_a_rate_is_no_debt_of_a_later_rate(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    made = add_key(str(file), "one", ["decide"], rate=1.0)
    with_rate = file.read_text()
    keys = Keys(str(file))

    def reloaded(text: str) -> Caller:
        file.write_text(text)
        assert keys.reload(force=True)
        caller = keys.caller(made)
        assert caller is not None
        return caller

    reloaded(with_rate.replace("rate = 1.0\n", "")).spend(1000)
    assert reloaded(with_rate).wait() == 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"scopes": ["fly"]}, "scopes are decide"),
        ({"scopes": []}, "scopes are decide"),
        ({"name": "a b"}, "letters, digits"),
        ({"rate": 0.0}, "positive number"),
        ({"rate": float("nan")}, "positive number"),
        ({"sessions": "a\nb"}, "printable"),
    ],
)
def test_bad_keys_are_refused(tmp_path: Path, options: dict[str, object], why: str) -> None:
    file = tmp_path / "keys.toml"
    arguments: dict[str, object] = {"name": "one", "scopes": ["decide"], **options}
    with pytest.raises(ValueError, match=why):
        add_key(str(file), **arguments)  # type: ignore[arg-type]
    assert not file.exists()
