"""Light and dark, narrow and wide: everything fits, can be read, and stands still."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.common.exceptions import StaleElementReferenceException

from tests.browser.chromium import Browser
from tests.browser.test_overview import live
from tests.browser.waiting import until
from tests.processes.service import RunningService

SHIFTS = """
    const done = arguments[0];
    const found = [];
    new PerformanceObserver((list) => {
      for (const { value, sources, hadRecentInput } of list.getEntries()) {
        const moved = sources.map(({ node }) => node?.id || node?.className || node?.nodeName);
        if (!hadRecentInput) found.push([value, moved]);
      }
    }).observe({ type: "layout-shift", buffered: true });
    setTimeout(() => done(found), 700);
"""
CONTRAST = """
    const channel = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const luminance = (name) => {
      const probe = document.body.appendChild(document.createElement("i"));
      probe.style.color = `var(${name})`;
      const [r, g, b] = getComputedStyle(probe).color.match(/[\\d.]+/g).map(Number).map(channel);
      probe.remove();
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const [a, b] = [...arguments].map(luminance);
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
"""


def click(page: Browser, found: str) -> bool:
    """Click what a script finds, as a user does: what moves in answer to that may move."""
    element = page.run(f"return {found}")
    try:
        element and element.click()
    except StaleElementReferenceException:  # the list was just drawn anew
        return False
    return element is not None


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("path", ["/", "/play"])
def test_it_fits_and_stands_still(
    page: Browser, demo: RunningService, tmp_path: Path, path: str, width: int, dark: bool
) -> None:
    page.open(demo.url + path, width, 900, dark=dark)
    live(page)
    if path == "/":
        chosen = "document.querySelector('#sessions tr:has(.mini .track) a')"  # one with a belief
        until(lambda: click(page, chosen))
        until(lambda: page.run("return document.querySelector('#session-chart path.area')"))
    shifted = page.driver.execute_async_script(SHIFTS)
    assert sum(value for value, _ in shifted) < 0.02, shifted
    assert page.run("return document.documentElement.scrollWidth") == width
    ground = page.run("return getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(16, 18, 24)" if dark else "rgb(246, 246, 248)")
    theme = "dark" if dark else "light"
    picture = page.screenshot(tmp_path / f"{path.strip('/') or 'overview'}-{width}-{theme}.png")
    assert picture.stat().st_size > 10_000


def test_nothing_is_cut_on_a_desk_and_nothing_is_empty_on_a_phone(
    page: Browser, played: RunningService
) -> None:
    page.open(played.url, 1280)
    live(page)
    until(lambda: page.texts("#actions tbody td"))
    cut = page.run(
        "document.querySelector('#sessions td.seen').textContent = '59 min ago';"
        "return [...document.querySelectorAll('#models .table-scroll, #actions, #sessions td')]"
        ".filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.textContent)"
    )
    assert cut == []
    page.open(played.url, 390, 900)
    live(page)
    height = "return document.querySelector('#session').getBoundingClientRect().height"
    assert page.run(height) == 0
    page.run("document.querySelector('#sessions a').click()")
    until(lambda: page.run(height) > 300)


def test_sixteen_states_have_colours_of_their_own(page: Browser, played: RunningService) -> None:
    for dark in (False, True):
        page.open(played.url, dark=dark)
        live(page)
        colours = page.run(
            "return Array.from({ length: 16 }, (_, s) => getComputedStyle(document.body)"
            ".getPropertyValue(`--state-${s}`))"
        )
        assert len(set(colours)) == 16
        assert all(colours)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_colours_have_contrast(page: Browser, played: RunningService, dark: bool) -> None:
    page.open(played.url, dark=dark)
    for text in ("--ink", "--soft", "--accent", "--bad", "--good"):
        assert page.run(CONTRAST, text, "--surface") >= 4.5  # WCAG AA for text
    for mark in [f"--state-{i}" for i in range(16)] + ["--contrast"]:
        assert page.run(CONTRAST, mark, "--surface") >= 2.0
