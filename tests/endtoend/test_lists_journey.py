"""Lists from a log to the service and back, as one journey on the command line."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from latentbandits.cli.main import main
from latentbandits.client import Client
from latentbandits.models.artefacts import load_click_model
from tests.processes.service import RunningService

RATES = np.array([[0.5, 0.4, 0.05, 0.05, 0.2], [0.05, 0.05, 0.5, 0.4, 0.2]])
"""Chances that a user of each kind likes an action."""

NAMES = np.array(["tea", "mate", "cocoa", "milk", "water"])
LENGTH, LISTS = 3, 4


def cascade(rates, rng):
    """The place of the first click in a list, or None."""
    clicked = np.flatnonzero(rng.random(len(rates)) < rates)
    return int(clicked[0]) if len(clicked) else None


def write_log(path, n_users=600):
    """A log of lists in random order: users read from the top and stop at their click."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(n_users):
        kind = rng.integers(2)
        for visit in range(LISTS):
            shown = rng.permutation(5)[:LENGTH]
            click = cascade(RATES[kind, shown], rng)
            rows += [
                (f"u{user}", f"{user}-{visit}", place + 1, NAMES[action], int(place == click))
                for place, action in enumerate(shown)
            ]
    names = ["user", "page", "place", "action", "reward"]
    pl.DataFrame(rows, schema=names, orient="row").write_csv(path)


def visit(url, names, rng):
    """Visitors of both kinds see their lists; returns the clicks per list of each."""
    clicks = []
    with Client(url) as client:
        for name in names:
            rates = RATES[rng.integers(2)]
            total = 0
            for _ in range(LISTS):
                decided = client.decide(name, length=LENGTH)
                liked = [rates[list(NAMES).index(action)] for action in decided.shown]
                click = cascade(np.array(liked), rng)
                client.reward(
                    decided.decision_id, clicked=None if click is None else decided.shown[click]
                )
                total += click is not None
            clicks.append(total / LISTS)
    return np.array(clicks)


@pytest.mark.slow
def test_lists_from_a_log_to_the_service_and_back(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_log("lists.csv")
    columns = ["--list", "page", "--position", "place"]
    assert main(["fit", "lists.csv", *columns, "--bootstrap", "0", "--out", "models/first"]) == 0
    assert load_click_model("models/first").name == "cascade"
    store = f"sqlite:{tmp_path / 'lists.sqlite'}"
    service = RunningService(
        "models/first", "--store", store, "--models", "models", "--policy", "mmTS",
        "--explore", "0.2", folder=tmp_path,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    with service:
        before = visit(service.url, [f"v{i}" for i in range(150)], rng)
        service.kill()
        service.start()
        after = visit(service.url, [f"w{i}" for i in range(150)], rng)
        # A random list of three is clicked by 53% of the users: the model must do better.
        both = np.concatenate([before, after])
        assert both.mean() - 0.53 > 4 * both.std() / np.sqrt(len(both))
        assert main(["export", "--store", store, "--out", "export.csv"]) == 0
        exported = pl.read_csv("export.csv")
        assert len(exported) == 300 * LISTS * LENGTH
        assert exported["reward"].sum() == round(LISTS * both.sum())
        capsys.readouterr()
        words = [
            "--model",
            "models/first",
            "--policies",
            "mmGreedy",
            "uniform",
            "--against",
            "logged",
        ]
        assert main(["evaluate", "export.csv", *words, "--json", "--out", "evaluation"]) == 0
        estimates = json.loads(capsys.readouterr().out)["estimates"]
        assert {row["policy"] for row in estimates} >= {"mmGreedy", "uniform"}
        # A list is clicked at most once: its value is a probability.
        assert all(row["low"] < row["per_round"] < row["high"] < 1.2 for row in estimates)
        words = ["--service", service.url, "--models", "models", "--policy", "mmTS", "--json"]
        assert main(["relearn", *words]) == 0
        run = json.loads(capsys.readouterr().out)
        # Rounds are lists, and every held-out session can be compared; there are too few to decide.
        assert run["data"]["judged_sessions"] == run["data"]["held_out_sessions"] > 50
        assert run["decision"] == "keep"
        assert f"of {LISTS} rounds" in run["why"]
