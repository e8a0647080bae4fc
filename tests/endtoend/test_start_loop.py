"""A service without a log: rewards are pooled, then a learned model takes over."""

import json

import numpy as np
import pytest
from evidence import loop_visits
from evidence.loop_users import ClickingUsers
from evidence.loop_visits import served

from latentbandits.client import Client
from latentbandits.loop.data import held_out
from latentbandits.loop.relearn import Model
from latentbandits.models.arms.start import save_start
from latentbandits.models.artefacts.catalogue import Catalogue
from latentbandits.serving.records import ModelRow
from tests.processes.service import run_command

KINDS = np.array([[0.9, 0.1, 0.1, 0.2], [0.1, 0.9, 0.1, 0.2]])
USERS = ClickingUsers(KINDS, n_rounds=8)


EXPLORE = {"test_a_learned_model_takes_over_through_the_gate": "0.75"}
"""Shares of random actions: the gate needs many, to weigh sessions of a policy that pools."""


@pytest.fixture
def service(tmp_path, request):
    models = tmp_path / "models"
    save_start(models / "start", Catalogue(["0", "1", "2", "3"]), "clicks")
    options = ("--explore", EXPLORE.get(request.node.name, "0.2"), "--models", str(models))
    with served(models / "start", tmp_path, *options) as url, Client(url, timeout=20.0) as client:
        yield tmp_path, url, client


def visit(client, prefix, n_sessions, seed):
    rng = np.random.default_rng(seed)
    return loop_visits.visit(client, prefix, USERS, USERS.visitors(rng), n_sessions, rng)


def relearn(folder, url, *options):
    words = ("--service", url, "--models", folder / "models", "--work", folder / "work")
    done = run_command("relearn", *words, *options, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def active_model(client):
    active = client.active_model()
    return Model.of(ModelRow(active.id, active.name, active.files)), active.judging_salt


def rows(client):
    """Return session, action and reward of every decision."""
    page = client.log("")
    return [(row.session, int(row.action), row.reward) for row in page.decisions]


def test_rewards_of_all_users_are_pooled_and_relearn_says_what_it_waits_for(service):
    folder, url, client = service
    visit(client, "first", 30, seed=1)
    open_session = client.decide("open")
    first = client.models().active
    printed = relearn(folder, url)
    current, salt = active_model(client)
    assert current.id != first
    log = [row for row in rows(client) if row[2] is not None]
    seen = ~held_out([session for session, _, _ in log], salt, 0.3)
    clicks, others = np.ones(4), np.ones(4)
    for (_, action, reward), kept in zip(log, seen, strict=True):
        clicks[action] += kept * reward
        others[action] += kept * (1 - reward)
    np.testing.assert_allclose(current.model.alpha, [clicks])  # the prior, and each reward once
    np.testing.assert_allclose(current.model.beta, [others])
    sessions = len({session for (session, _, _), kept in zip(log, seen, strict=True) if kept})
    assert f"waits for {200 - sessions} more sessions with 2 or more rewards" in printed
    client.reward(open_session.decision_id, 1.0)
    assert client.decide("open").model == first  # an open session keeps its model
    assert client.decide("new").model == current.id


def test_a_run_without_new_rewards_pools_nothing(service):
    folder, url, client = service
    visit(client, "first", 10, seed=2)
    assert "pool (done)" in relearn(folder, url)
    active = client.models().active
    assert "nothing new (done)" in relearn(folder, url)
    assert client.models().active == active
    assert len(list((folder / "models").iterdir())) == 2


@pytest.mark.slow
def test_a_learned_model_takes_over_through_the_gate(service):
    folder, url, client = service
    visit(client, "start", 40, seed=3)
    relearn(folder, url)
    pooled = visit(client, "pooled", 1000, seed=4)
    printed = relearn(folder, url, "--tightest-at", "300", "--compared", "0.25")
    assert "activate (done)" in printed, printed
    record = json.loads((folder / "work" / "runs" / "000002.json").read_text())
    assert record["verdict"]["low"] > 0
    current, _ = active_model(client)
    assert current.model.n_states == 2
    learned = visit(client, "learned", 300, seed=5)
    error = np.hypot(pooled.std() / np.sqrt(len(pooled)), learned.std() / np.sqrt(len(learned)))
    assert learned.mean() < pooled.mean() - 3 * error  # regret per session
    visit(client, "more", 20, seed=6)
    assert "waits for" not in relearn(folder, url)
