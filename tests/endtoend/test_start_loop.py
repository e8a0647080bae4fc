"""A service without a log: rewards are pooled, then a learned model takes over."""

import itertools
import math
import multiprocessing
import os
import signal
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from evidence import loop_visits
from evidence.loop_users import ClickingUsers
from evidence.loop_visits import served

from latentbandits.client import Client
from latentbandits.learning.fitting import fit
from latentbandits.loop.data import held_out
from latentbandits.loop.kept_log import ServiceSource
from latentbandits.loop.records import Records, read_runs
from latentbandits.loop.relearn import (
    LEAST_SESSIONS,
    LEAST_TRIED,
    LoopSettings,
    Model,
    Relearner,
)
from latentbandits.models import artefacts
from latentbandits.models.arms.dirichlet import BernoulliArms
from latentbandits.models.arms.start import save_start
from latentbandits.models.artefacts import Catalogue, save
from latentbandits.serving.records import ModelRow
from tests.processes.service import run_command

KINDS = np.array([[0.9, 0.1, 0.1, 0.2], [0.1, 0.9, 0.1, 0.2]])
USERS = ClickingUsers(KINDS, n_rounds=8)
FORKS = multiprocessing.get_context("forkserver")


@pytest.fixture
def service(tmp_path):
    models = tmp_path / "models"
    save_start(models / "start", Catalogue(["0", "1", "2", "3"]), "clicks")
    options = ("--models", str(models))
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
    return [(row.session, int(row.action), row.reward) for row in client.entries()]


def test_rewards_of_all_users_are_pooled_and_relearn_says_what_it_waits_for(service):
    folder, url, client = service
    visit(client, "first", 30, seed=1)
    open_session = client.decide("open")
    first = client.models().active
    printed = relearn(folder, url)
    current, salt = active_model(client)
    assert current.id != first
    log = [row for row in rows(client) if row[2] is not None]
    clicks, others = np.ones(4), np.ones(4)
    for _, action, reward in log:
        clicks[action] += reward
        others[action] += 1 - reward
    np.testing.assert_allclose(current.model.alpha, [clicks])  # the prior, and each reward once
    np.testing.assert_allclose(current.model.beta, [others])
    sessions = sorted({session for session, _, _ in log})
    learnable = int((~held_out(sessions, salt, 0.3)).sum())
    assert f"waits for {LEAST_SESSIONS - learnable} more sessions with 2 or more rewards" in printed
    client.reward(open_session.decision_id, 1.0)
    assert client.decide("open").model == first  # an open session keeps its model
    assert client.decide("new").model == current.id


def run_and_die(folder, url, tick):
    """Run relearn, and kill this process with SIGKILL at the given one of its durable steps.

    Ticks are before and after each record, each artefact and each activation.
    """
    ticks = itertools.count(1)

    def dying(original):
        def step(*arguments, **options):
            if next(ticks) == tick:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*arguments, **options)
            if next(ticks) == tick:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return step

    Records.write = dying(Records.write)
    artefacts.write = dying(artefacts.write)
    settings = LoopSettings(work=folder / "work", models=folder / "models")
    with Client(url, timeout=20.0) as client:
        client.activate = dying(client.activate)
        Relearner(settings, client, ServiceSource(client)).run()


def check_kills_while_pooling(service, ticks):
    """After each kill the next run leaves every reward in the active model once."""
    folder, url, client = service
    visitors = 10
    visit(client, "first", visitors, seed=1)
    relearn(folder, url)
    for tick in ticks:
        more = math.ceil(0.1 * visitors) + 1
        visit(client, f"kill{tick}", more, seed=tick)
        visitors += more
        process = FORKS.Process(target=run_and_die, args=(folder, url, tick))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL, tick
        relearn(folder, url)
        current, _ = active_model(client)
        clicks, others = np.ones(4), np.ones(4)
        for _, action, reward in rows(client):
            if reward is not None:
                clicks[action] += reward
                others[action] += 1 - reward
        np.testing.assert_allclose(current.model.alpha, [clicks], err_msg=f"tick {tick}")
        np.testing.assert_allclose(current.model.beta, [others], err_msg=f"tick {tick}")
        assert client.decide(f"new{tick}").model == current.id
    runs = list(read_runs(folder / "work" / "runs"))
    assert all(run.outcome != "planned" for run in runs)
    pooled = [run.candidate for run in runs if run.decision == "pool" and run.outcome == "done"]
    assert [swap.model for swap in client.models().swaps[1:]] == pooled  # each once, with a record
    assert not list((folder / "models").glob(".*"))


@pytest.mark.slow
def test_relearn_killed_while_it_pools(service):
    check_kills_while_pooling(service, [6, 9, 10])  # within the artefact, around the activation


@pytest.mark.slow
def test_relearn_killed_at_every_step_while_it_pools(service):
    check_kills_while_pooling(service, range(1, 15))


@pytest.mark.slow
def test_a_run_without_new_rewards_pools_nothing(service):
    folder, url, client = service
    visit(client, "first", 10, seed=2)
    assert "pool (done)" in relearn(folder, url)
    active = client.models().active
    assert "nothing new (done)" in relearn(folder, url)
    assert client.models().active == active
    assert len(list((folder / "models").iterdir())) == 2


@pytest.mark.slow
def test_rewards_are_pooled_again_when_they_have_grown_by_a_tenth(service):
    folder, url, client = service
    visit(client, "first", 20, seed=2)
    assert "pool (done)" in relearn(folder, url)
    visit(client, "one", 1, seed=3)  # 8 rewards more than 160
    assert "nothing new (done): the log has too few new rewards to pool" in relearn(folder, url)
    visit(client, "two", 1, seed=4)
    assert "pool (done)" in relearn(folder, url)


def models_of_new_sessions(client, prefix):
    return Counter(client.decide(f"{prefix}{i}").model for i in range(40))


@pytest.mark.slow
def test_a_learned_model_takes_over_after_a_trial(service):
    folder, url, client = service
    visit(client, "start", 40, seed=3)
    relearn(folder, url)
    pooled = visit(client, "pooled", 160, seed=4)
    start = client.models().active
    assert "try (done): half of the new sessions" in relearn(folder, url)
    models = client.models()
    assert models.active == start
    assert set(models_of_new_sessions(client, "some")) == {start, models.trial}
    assert f"the trial waits for {LEAST_TRIED} sessions with each model" in relearn(folder, url)
    visit(client, "tried", 160, seed=5)
    printed = relearn(folder, url)
    assert "activate (done): the sessions on trial earn more" in printed, printed
    assert client.models().active == models.trial
    assert set(models_of_new_sessions(client, "others")) == {models.trial}
    learned = visit(client, "learned", 100, seed=6)
    error = np.hypot(pooled.std() / np.sqrt(len(pooled)), learned.std() / np.sqrt(len(learned)))
    assert learned.mean() < pooled.mean() - 3 * error  # regret per session
    assert "try (done)" in relearn(folder, url)  # its successor is tried against it
    assert client.models().active == models.trial


BEST = BernoulliArms(100 * KINDS, 100 * (1 - KINDS))
_WRONG = np.array([[0.2, 0.2, 0.9, 0.2], [0.2, 0.2, 0.8, 0.2]])
WORST = BernoulliArms(1000 * _WRONG, 1000 * (1 - _WRONG))
"""A planted candidate that is sure that everyone clicks the action that nobody does."""


def planted_loop(folder, client, model):
    settings = LoopSettings(work=folder / "work", models=folder / "models")

    def learn_this(paths, options, progress):
        return replace(fit(paths, options, progress=progress), model=model)

    return Relearner(settings, client, ServiceSource(client), learn_this)


@pytest.mark.slow
def test_a_worse_successor_of_a_learned_model_is_taken_off_trial(service):
    folder, _, client = service
    visit(client, "start", 200, seed=3)  # 70% of them to learn from: 100, but for 6 errors
    good = planted_loop(folder, client, BEST)
    assert good.run().decision == "try"
    visit(client, "tried", 160, seed=4)
    assert good.run().decision == "activate"
    active = client.models().active
    visit(client, "learned", 100, seed=5)
    bad = planted_loop(folder, client, WORST)
    assert bad.run().decision == "try"
    visit(client, "again", 160, seed=6)
    run = bad.run()
    assert (run.decision, run.outcome, run.groups["trial"]["high"] < 0) == ("keep", "done", True)
    models = client.models()
    assert (models.active, models.trial) == (active, None)
    assert set(models_of_new_sessions(client, "later")) == {active}
    visit(client, "more", 10, seed=7)
    assert "no learned model is on trial; a learned model waits for" in bad.run().why


@pytest.mark.slow
def test_a_worse_model_is_taken_off_trial(service):
    folder, _, client = service
    visit(client, "start", 200, seed=3)
    loop = planted_loop(folder, client, WORST)
    assert [loop.run().decision, loop.run().decision] == ["try", "nothing new"]
    tried = client.models().trial
    visit(client, "tried", 36, seed=4)  # fewer than two groups of LEAST_TRIED
    run = loop.run()
    assert (run.decision, run.outcome) == ("pool", "done"), run
    assert run.groups["trial"]["value"] < 0
    models = client.models()
    assert models.trial is None
    assert models.active not in (tried, run.current)  # the start model, with the rewards since
    clicks = np.ones(4)  # without those of the planted model, which chose for whom it took users
    for row in client.entries():
        if row.model != tried:
            clicks[int(row.action)] += row.reward
    np.testing.assert_allclose(active_model(client)[0].model.alpha, [clicks])
    assert set(models_of_new_sessions(client, "later")) == {models.active}


@pytest.mark.slow
def test_a_trial_that_this_loop_has_not_begun_goes_on(service):
    folder, url, client = service
    visit(client, "start", 10, seed=3)
    learned = BernoulliArms(10 * KINDS, 10 * (1 - KINDS))
    save(learned, folder / "models" / "mine", Catalogue(["0", "1", "2", "3"]))
    trial = client.activate("mine", "trial").trial
    assert "which this loop has not begun" in relearn(folder, url)
    assert client.models().trial == trial
