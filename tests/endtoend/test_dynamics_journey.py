"""Users whose state moves, from a log to a service and back: fit, serve, evaluate, relearn."""

import json

import numpy as np
import polars as pl
import pytest

from latentbandits import Markov, load
from latentbandits.client import Client
from latentbandits.models.composed.markov import switching_matrix
from tests.processes.service import RunningService, run_command
from tests.unit.test_fit_dynamics import MEANS, moving_log

N_VISITS, N_ROUNDS, HOUR = 2, 12, 3_600


def log_of_visits(n_users, seed):
    """Return a table of users who come twice, an hour apart; states last 10 rounds on average."""
    log = moving_log(n_users, N_VISITS * N_ROUNDS, stay=10, seed=seed)
    turn = np.tile(np.arange(N_VISITS * N_ROUNDS), n_users)
    return pl.DataFrame(
        {
            "user": [log.user_ids[u] for u in log.users],
            "action": [log.action_ids[a] for a in log.actions],
            "reward": log.rewards,
            "time": turn * 60 + turn // N_ROUNDS * HOUR,
        }
    )


def play(client, names, states, rng):
    """Play a round of these sessions, whose states then move; return the decisions."""
    decisions = client.decide_many([{"session": name} for name in names])
    actions = [int(one.action.removeprefix("action ")) for one in decisions]
    rewards = MEANS[states, actions] + 0.3 * rng.standard_normal(len(names))
    ids = [one.decision_id for one in decisions]
    client.reward_many(list(zip(ids, rewards.tolist(), strict=True)))
    moved = switching_matrix(3, 0.1).cumsum(axis=1)[states, :-1]
    states[:] = (rng.random((len(names), 1)) >= moved).sum(axis=1)
    return decisions


@pytest.mark.slow
def test_a_model_that_moves_is_served_evaluated_and_relearned(tmp_path):
    models, store = tmp_path / "models", f"sqlite:{tmp_path / 's.sqlite'}"
    log_of_visits(200, seed=1).write_csv(tmp_path / "log.csv")
    words = ("--time", "time", "--session-gap", "30m", "--kind", "arms", "--bootstrap", "0")
    done = run_command(
        "fit", tmp_path / "log.csv", *words, "--out", models / "first", timeout=600
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "lasts" in done.stdout
    assert "After a pause of 30m" in done.stdout
    results = json.loads((models / "first/results.json").read_text())
    assert results["dynamics"] == "markov"
    model = load(models / "first")
    assert isinstance(model, Markov)
    assert np.allclose(results["mean_stay"], 10, rtol=0.4)

    rng = np.random.default_rng(2)
    names = [f"visitor {i}" for i in range(600)]
    states = rng.integers(3, size=len(names))
    options = ("--models", models, "--store", store, "--policy", "mTS", "--explore", "0.5")
    with RunningService(models / "first", *options, folder=tmp_path) as service:
        with Client(service.url, timeout=30.0) as client:
            for _ in range(4):
                play(client, names, states, rng)
            before = client.session(names[0]).state_probabilities
        assert service.terminate()[0] == 0
        service.clock = HOUR
        service.start()
        with Client(service.url, timeout=30.0) as client:
            first = play(client, names, states, rng)
            moved = np.array(before) @ model.returning
            np.testing.assert_allclose(first[0].state_probabilities, moved, atol=1e-6)
            for _ in range(3):
                play(client, names, states, rng)
        exported = tmp_path / "export.parquet"
        done = run_command("export", "--store", store, "--out", exported)
        assert done.returncode == 0, done.stderr
        done = run_command(
            "evaluate", exported, "--model", models / "first", "--policies", "mTS", "UCB1",
            "--out", tmp_path / "evaluated", timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        rows = json.loads((tmp_path / "evaluated/results.json").read_text())["estimates"]
        value = {row["policy"]: row for row in rows if row["estimator"] == "SNDR"}
        assert value["mTS"]["value"] > value["UCB1"]["value"]
        done = run_command(
            "relearn", "--service", service.url, "--models", models, "--work", tmp_path / "work",
            "--with", tmp_path / "log.csv", "--policy", "mTS", timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "work/runs/000001.json").read_text())
    candidate = load(record["candidate_path"])
    assert isinstance(candidate, Markov), record
    assert candidate.session_gap == 1_800
