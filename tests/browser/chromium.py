"""A headless Chromium from Debian's packages, installed first where that is possible."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

PACKAGES = ("chromium", "chromium-driver", "fonts-inter")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--lang=en-GB",
)


class NoBrowser(Exception):  # noqa: N818 - a reason, not a fault
    """Why there is no Chromium here."""


def ensure_installed() -> None:
    """Chromium and its driver; where several processes ask at once, one installs."""
    if _installed():
        return
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NoBrowser(f"needs {', '.join(PACKAGES)}: apt-get install {' '.join(PACKAGES)}")
    with Path(tempfile.gettempdir(), "latentbandits-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _installed():
            return
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
            done = subprocess.run(
                ["apt-get", "-q", *command], env=environment, capture_output=True, text=True
            )
            if done.returncode:
                raise NoBrowser(f"apt-get {command[0]} failed: {done.stderr.strip()[-300:]}")
    if not _installed():
        raise NoBrowser("the packages were installed, but there is no chromium on the path")


def _installed() -> bool:
    return all(shutil.which(name) for name in ("chromium", "chromedriver"))


class Browser:
    """A driver that also knows which requests were made and what the console said."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self._hosts: set[str] = set()

    def open(self, url: str, width: int = 1400, height: int = 1000, *, dark: bool = False) -> None:
        """A page of this size, with nothing remembered from the one before."""
        self.close()
        self.command("Network.enable")
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        motion = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.command("Emulation.setEmulatedMedia", features=[scheme, motion])
        self.driver.get(url)

    def close(self) -> None:
        """Leave the page, so that it asks nothing more."""
        self.driver.get("about:blank")

    def command(self, name: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, parameters)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        result: str = self.run("return document.querySelector(arguments[0]).textContent", selector)
        return result.strip()

    def texts(self, selector: str) -> list[str]:
        nodes = "[...document.querySelectorAll(arguments[0])]"
        result: list[str] = self.run(f"return {nodes}.map(n => n.textContent.trim())", selector)
        return result

    def console(self) -> list[str]:
        """Warnings and errors since the last call."""
        return [f"{e['level']}: {e['message']}" for e in self.driver.get_log("browser")]

    def hosts(self) -> set[str]:
        """Every host that a page asked anything of, so far."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = urlsplit(message["params"]["request"]["url"])
                if url.scheme not in ("about", "data", "chrome", "chrome-untrusted"):
                    self._hosts.add(url.hostname or url.geturl())
        return self._hosts

    def screenshot(self, path: Path, *, whole: bool = True) -> Path:
        """The page, all of its height or what the window shows."""
        if whole:
            size = self.run(
                "return [innerWidth, document.documentElement.scrollHeight, devicePixelRatio]"
            )
            self.command(
                "Emulation.setDeviceMetricsOverride",
                width=size[0],
                height=size[1],
                deviceScaleFactor=1,
                mobile=size[0] < 500,
            )
            self.driver.execute_async_script(
                "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        if not self.driver.save_screenshot(str(path)):
            raise OSError(f"cannot write {path}")
        return path


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium with a fresh profile; NoBrowser where there can be none."""
    ensure_installed()
    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "WARNING", "performance": "ALL"})
    with tempfile.TemporaryDirectory(prefix="latentbandits-chromium-") as profile:
        options.add_argument(f"--user-data-dir={profile}")
        service = Service(shutil.which("chromedriver"))
        driver = webdriver.Chrome(options, service)
        try:
            yield Browser(driver)
        finally:
            driver.quit()
