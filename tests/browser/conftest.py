"""A real Chromium, and the real service with sessions that a test has played."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from latentbandits.models import GaussianArms, save
from tests.browser.chromium import Browser, NoBrowser, browser, ensure_installed
from tests.processes.service import RunningService

N_STATES, N_ACTIONS = 3, 6
MEANS = np.random.default_rng(3).uniform(1.0, 3.0, (N_STATES, N_ACTIONS))
MEANS += 2.0 * (np.arange(N_STATES)[:, None] == np.arange(N_ACTIONS) // 2)  # two favourites each


def _why_not() -> str | None:
    try:
        ensure_installed()
    except NoBrowser as reason:
        return str(reason)
    return None


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    reason = _why_not()
    if reason is not None:
        warnings.simplefilter("always")
        warnings.warn(f"THE BROWSER TESTS WERE NOT RUN: no Chromium; {reason}", stacklevel=1)
        pytest.skip(f"no Chromium: {reason}")
    with browser() as opened:
        yield opened


@pytest.fixture
def page(chromium: Browser) -> Iterator[Browser]:
    """The browser, which must not complain nor ask anything of another host while in use."""
    chromium.console()
    yield chromium
    chromium.close()
    complaints = chromium.console()
    assert complaints == []
    elsewhere = {host for host in chromium.hosts() if not host.startswith("file:")}
    assert elsewhere <= {"127.0.0.1"}


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tastes"
    save(GaussianArms(MEANS, noise=0.5, spread=0.1, state_prior=[0.5, 0.3, 0.2]), folder)
    return folder


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    with RunningService("--demo", folder=tmp_path_factory.mktemp("demo")) as running:
        yield running


@pytest.fixture(scope="session")
def played(
    model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """A service in which thirty sessions of eight rounds have been played, and nothing moves."""
    folder = tmp_path_factory.mktemp("played")
    with RunningService(model_folder, "--holdout-share", "0.4", folder=folder) as running:
        play_sessions(running, n_sessions=30, n_rounds=8)
        yield running


@pytest.fixture(scope="session")
def playground(
    model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """A service to play with: nobody counts its sessions."""
    folder = tmp_path_factory.mktemp("playground")
    with RunningService(model_folder, "--holdout-share", "0.4", folder=folder) as running:
        yield running


def play_sessions(running: RunningService, n_sessions: int, n_rounds: int) -> None:
    rng = np.random.default_rng(4)
    state = rng.integers(N_STATES, size=n_sessions)
    names = [f"user {i:02d}/é" for i in range(n_sessions)]  # a name may have anything in it
    with running.client(trust_env=False) as http:
        for _ in range(n_rounds):
            decided = http.post("/v1/decide", json=[{"session": name} for name in names]).json()
            rewards = [
                {
                    "decision_id": one["decision_id"],
                    "value": float(rng.normal(MEANS[state[i], one["index"]], 0.5)),
                }
                for i, one in enumerate(decided)
            ]
            assert http.post("/v1/reward", json=rewards).status_code == 200
