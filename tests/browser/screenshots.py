"""The pictures of the docs: `python -m tests.browser.screenshots [FOLDER]`, about two minutes.

They show the demonstration as it is after some eighty visitors, and ten picks of someone who likes
what state 1 likes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.browser.chromium import Browser, browser
from tests.browser.test_overview import get, live
from tests.browser.test_play import catalogue, play
from tests.browser.waiting import until
from tests.processes.service import RunningService

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
_VISITORS = 80
_WIDTH = 1240


def telling_session(running: RunningService) -> str:
    """The recent session whose state was in doubt for longest."""

    def doubtful_rounds(name: str) -> int:
        history = get(running, f"/v1/sessions/{name}")["history"]
        return sum(max(event["state_probabilities"]) < 0.9 for event in history)

    recent = get(running, "/v1/overview")["recent"]
    names = [one["session"] for one in recent if one["group"] == "policy" and one["round"] >= 20]
    return max(names, key=doubtful_rounds)


def shoot_overview(page: Browser, running: RunningService, path: Path, *, dark: bool) -> None:
    name = telling_session(running)
    page.open(f"{running.url}/#session={name}", _WIDTH, dark=dark)
    live(page)
    until(lambda: page.text("#session-title") == name)
    page.screenshot(path)


def shoot_play(page: Browser, running: RunningService, path: Path) -> None:
    page.open(f"{running.url}/play", _WIDTH)
    live(page)
    play(page, catalogue(running), state=1, rounds=10)
    page.screenshot(path)


def main(folder: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as scratch,
        RunningService("--demo", folder=Path(scratch)) as running,
        browser() as page,
    ):
        until(lambda: get(running, "/v1/overview")["counts"]["started"] >= _VISITORS, 300.0)
        shoot_overview(page, running, folder / "service-light.png", dark=False)
        shoot_overview(page, running, folder / "service-dark.png", dark=True)
        shoot_play(page, running, folder / "play.png")
    for name in ("service-light", "service-dark", "play"):
        path = folder / f"{name}.png"
        Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
            path, optimize=True
        )
        sys.stdout.write(f"{path}: {path.stat().st_size / 1000:.0f} kB\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURES)
