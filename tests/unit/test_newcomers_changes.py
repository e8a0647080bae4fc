"""A new experiment, learner and endpoint as CONTRIBUTING.md describes them, for a toy of each."""

import argparse
import json
import warnings
from html import unescape
from typing import Literal

import evidence.__main__ as evidence_command
import msgspec
import numpy as np
import polars as pl
import pytest

from latentbandits import GaussianArms, load
from latentbandits.cli import main
from latentbandits.experiments import Experiment
from latentbandits.experiments.experiment import Work
from latentbandits.learning import fit_options, fitting
from latentbandits.learning.backends.backend import engine_of
from latentbandits.learning.generate import generate_arms
from latentbandits.learning.learners import (
    Candidate,
    Learned,
    Learner,
    Replicate,
    Selection,
    judge,
)
from latentbandits.options import Option, positive
from latentbandits.report import drawing
from latentbandits.report.report import Claim, Estimate, Report, Table
from latentbandits.serving import embed
from latentbandits.serving.http import app as app_module
from latentbandits.serving.http import endpoints, pages
from latentbandits.serving.http.endpoints import Call, Endpoint
from tests.unit.engine_driver import ARMS

with warnings.catch_warnings():  # about which httpx it would rather have
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient


def toss(seed):
    return int(np.random.default_rng(seed).integers(2))


class CoinExperiment(Experiment):
    """The module of a new experiment: its settings, its computation, its claims."""

    name = "coin"
    help = "a coin is fair"
    options = (Option("tosses", "of the coin", 100, positive),)

    def check(self, arguments: argparse.Namespace) -> None:
        if arguments.tosses < 2:
            raise ValueError("give at least 2 --tosses")

    def measure(self, work: Work) -> Report:
        seeds = [(work.options.seed + i,) for i in range(work.options.tosses)]
        heads = np.array(work.map(self.name, toss, seeds), np.float64)
        share = Estimate.from_values(heads)
        row = {"policy": "coin", "setting": "table", "share": share.mean, "share_stderr": 0.0}
        fair = abs(share.mean - 0.5) < 3 * share.stderr
        return Report(
            policies=[row],
            claims=[Claim("fair", "the coin is fair", "half of the tosses", str(share), fair)],
            tables=[Table("Tosses", ("heads",), [(str(share),)])],
        )

    def draw(self, results):
        from matplotlib.figure import Figure

        figure = Figure()
        drawing.plain(figure.subplots())
        return {"coin": figure}


@pytest.fixture
def coin(monkeypatch):
    """The one line of evidence/__init__.py."""
    experiments = (*evidence_command.EXPERIMENTS, CoinExperiment())
    monkeypatch.setattr(evidence_command, "EXPERIMENTS", experiments)


def test_a_new_experiment_is_one_module_and_one_line(coin, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["coin", "--tosses", "60", "--seed", "3", "--jobs", "1", "--out", str(out)]
    assert evidence_command.main(command) == 0
    results = json.loads((out / "results.json").read_text())
    assert results["experiment"] == "coin"
    assert results["settings"] == {"tosses": 60, "seed": 3}
    assert results["policies"][0]["share"] == np.mean([toss(seed) for seed in range(3, 63)])
    assert [claim["holds"] for claim in results["claims"]] == [True]
    assert (out / "coin.png").exists()
    assert "1 of 1 claims hold" in capsys.readouterr().out


def test_a_new_experiment_has_its_options_and_checks(coin, tmp_path, capsys):
    assert evidence_command.main(["coin", "--tosses", "1", "--out", str(tmp_path / "out")]) == 2
    assert "at least 2 --tosses" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit):
        evidence_command.main(["coin", "--help"])
    assert "of the coin (default 100)" in capsys.readouterr().out


class OneStateLearner(Learner):
    """The module of a new learner: one state, whose means are those of the log."""

    def select(self, split, states):
        learned = self.learn(split.kept, None, split.seed)
        judged = judge(learned, split.held_out)
        chosen = Candidate.scored(1, None, judged)
        return Selection(self, (chosen,), chosen, learned, judged)

    def choose(self, rows):
        return rows[0]

    def learn(self, log, chosen, seed):
        summary = engine_of(log).summary
        rewards = summary.rewards
        means = np.asarray(summary.action_sums) / np.maximum(summary.action_counts, 1)
        model = GaussianArms(means[None], noise=rewards.deviation, spread=0.1)
        return Learned(model, None, summary.action_counts)

    def replicates(self, log, learned, n_fits, seed):
        for _ in range(n_fits):
            yield Replicate(learned.rewards(), np.ones(1), learned.counts)

    def widened(self, learned, disagreement):
        return learned

    def settings(self):
        return {"rewards": "gaussian"}


def test_a_new_learner_is_one_module_a_name_and_its_choice(monkeypatch, tmp_path, capsys):
    """`fit` selects, learns, bootstraps, assesses, saves and reports with it."""
    monkeypatch.setattr(fit_options, "Kind", Literal["auto", "linear", "arms", "one-state"])
    chosen = fitting._learner

    def choose(users, form, options):
        if form == "one-state":
            return OneStateLearner(), None
        return chosen(users, form, options)

    monkeypatch.setattr(fitting, "_learner", choose)
    log = generate_arms(n_users=60, n_rounds=10, n_states=2, n_actions=3, seed=1).log
    rows = {"user": log.users, "action": log.actions, "reward": log.rewards}
    pl.DataFrame(rows).write_csv(tmp_path / "log.csv")
    command = ["fit", str(tmp_path / "log.csv"), "--kind", "one-state", "--bootstrap", "2"]
    assert main([*command, "--out", str(tmp_path / "model")]) == 0
    means = [log.rewards[log.actions == action].mean() for action in range(3)]
    np.testing.assert_allclose(load(tmp_path / "model").means[0], means)
    report = json.loads((tmp_path / "model" / "report.json").read_text())
    assert report["settings"]["kind"] == "one-state"
    assert report["judgement"]["verdict"]
    with pytest.raises(SystemExit):
        main([*command[:3], "two-states", "--out", str(tmp_path / "model")])
    assert "'auto', 'linear', 'arms', 'one-state'" in capsys.readouterr().err


class Greeting(msgspec.Struct, frozen=True):
    """The messages of a new endpoint: the body of a request."""

    session: str


class Greeted(msgspec.Struct, frozen=True):
    """The answer to it."""

    text: str
    rounds: int


async def greet(call: Call) -> Greeted:
    """The handler of a new endpoint: it calls the engine, and returns the answer."""
    session = call.body.session
    live, _ = await call.service.writer.run(lambda engine: engine.latest(session))
    return Greeted(f"hello {session}", live.row.rounds)


@pytest.fixture
def greeting(monkeypatch):
    """The one line of `ENDPOINTS`, and the example."""
    new = Endpoint("POST", "/v1/greet", "read", "Greet a session.", Greeted, greet, Greeting,
                   errors=(404,))  # fmt: skip
    monkeypatch.setattr(app_module, "ENDPOINTS", (*endpoints.ENDPOINTS, new))
    monkeypatch.setattr(pages, "ENDPOINTS", (*endpoints.ENDPOINTS, new))
    monkeypatch.setitem(pages.EXAMPLES, "greet", {"session": "ann"})


def test_a_new_endpoint_is_its_messages_its_handler_and_its_example(greeting):
    """It is routed, checks its body, refuses and documents itself."""
    with TestClient(embed(ARMS)) as http:
        http.post("/v1/decide", json={"session": "ann"})
        answer = http.post("/v1/greet", json={"session": "ann"})
        assert (answer.status_code, answer.json()) == (200, {"text": "hello ann", "rounds": 1})
        assert http.post("/v1/greet", json={"session": "bob"}).status_code == 404
        assert http.post("/v1/greet", json={"session": 7}).status_code == 422
        assert http.get("/v1/greet").status_code == 405
        document = http.get("/openapi.json").json()
        assert document["paths"]["/v1/greet"]["post"]["operationId"] == "greet"
        assert '-d \'{"session": "ann"}\'' in unescape(http.get("/docs").text)
