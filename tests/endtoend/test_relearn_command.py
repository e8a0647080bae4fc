"""`latentbandits relearn` beside a real service: it promotes, keeps, and survives kills."""

import json
import random
import signal
import subprocess
import time

import numpy as np
import polars
import pytest
from evidence import loop_visits as visits
from evidence.loop_users import SimulatedUsers
from evidence.loop_visits import served

from latentbandits import GaussianArms, save
from latentbandits.cli import main
from latentbandits.client import Client
from latentbandits.learning import fit
from latentbandits.loop.kept_log import ServiceSource
from latentbandits.loop.relearn import LoopSettings, Relearner
from tests.processes.service import command, run_command

MEANS = np.array([[0.9, 0.1, 0.3], [0.6, 0.2, 0.1]])
NOISE = 0.5


def visit(client, prefix, n_sessions, n_rounds, rng):
    users = SimulatedUsers(MEANS, NOISE, n_rounds)
    return visits.visit(client, prefix, users, users.visitors(rng), n_sessions, rng)


@pytest.fixture
def service(tmp_path):
    """A service whose model takes the worst actions for the best, and an older log."""
    models = tmp_path / "models"
    wrong = GaussianArms(1 - MEANS, NOISE, spread=0.05)
    save(wrong, models / "first")
    old = SimulatedUsers(MEANS, NOISE, 20).table(200, np.random.default_rng(5))
    polars.DataFrame(old).write_csv(tmp_path / "old.csv")
    options = ("--policy", "mTS", "--explore", "0.75", "--models", str(models))
    options += ("--relearn", str(tmp_path / "work"))
    with served(models / "first", tmp_path, *options) as url, Client(url, timeout=20.0) as client:
        yield tmp_path, url, client


def to_relearn(folder, url):
    """Return the options of every run."""
    words = ("--service", url, "--models", folder / "models", "--work", folder / "work")
    fixed = ("--policy", "mTS", "--held-out", "0.5")
    with_old = ("--with", folder / "old.csv") if (folder / "old.csv").exists() else ()
    return [str(word) for word in (*words, *fixed, *with_old)]


def relearn(folder, url, *options):
    return run_command("relearn", *to_relearn(folder, url), *options, timeout=600)


@pytest.fixture
def relearn_here(capsys, few_tuned_users):
    """Run the command in this process, with few of the users with whom a fit compares policies."""

    def run(folder, url, *options):
        code = main(["relearn", *to_relearn(folder, url), *map(str, options)])
        printed = capsys.readouterr()
        return subprocess.CompletedProcess([], code, printed.out, printed.err)

    return run


def record(folder, number):
    return json.loads((folder / "work" / "runs" / f"{number:06d}.json").read_text())


def test_a_better_model_is_promoted_and_forgotten_sessions_are_gone(service, relearn_here):
    folder, url, client = service
    rng = np.random.default_rng(0)
    first = client.models().active
    before = visit(client, "before", 1000, 3, rng)
    visit(client, "more", 50, 3, rng)
    dry = relearn_here(folder, url, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert (record(folder, 1)["decision"], record(folder, 1)["outcome"]) == ("activate", "dry run")
    assert client.models().active == first
    again = relearn_here(folder, url, "--dry-run")
    assert "nothing new" in again.stdout
    done = relearn_here(folder, url)  # the same log, but no dry run
    assert "activate (done)" in done.stdout, done.stdout + done.stderr
    assert client.models().active == record(folder, 3)["candidate"] != first
    shown = client.overview().relearnings  # the page's timeline, the latest run first
    assert [run.decision for run in shown] == ["activate", "nothing new", "activate"]
    assert shown[0].verdict.low > 0
    after = visit(client, "after", 100, 3, rng)
    assert after.mean() < before.mean() - 3 * before.std() / np.sqrt(len(before))
    client.forget("more-0")
    poisoned = SimulatedUsers(1 - MEANS, NOISE, 20).table(600, rng)  # seven times as much data
    polars.DataFrame(poisoned).write_csv(folder / "poisoned.csv")
    store = f"sqlite:{folder / 'sessions.sqlite'}"
    kept = relearn_here(folder, url, "--store", store, "--with", folder / "poisoned.csv")
    assert kept.returncode == 0, kept.stderr
    last = record(folder, 4)
    assert (last["decision"], last["outcome"]) == ("keep", "done"), kept.stdout
    assert last["verdict"]["difference"] < 0
    assert client.models().active == record(folder, 3)["candidate"]
    assert last["data"]["sessions"] == 1000 + 50 + 100 - 1
    assert last["data"]["read"] < 300 + 10  # only what came since: 100 sessions, their rewards
    kept_log = next((folder / "work" / "log").iterdir())
    assert "more-0" not in set(polars.read_parquet(kept_log)["session"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--held-out", "1.5"), "the held-out share must lie between 0 and 1; got 1.5"),
        (("--margin", "nan"), "the margin must be a finite number; got nan"),
        (("--policy", "mTs"), "mTS"),
        (("--with", "nowhere.csv"), "nowhere.csv"),
        (("--every", "soon"), "is not a time such as"),
        (("--models", "nowhere"), "is not a folder"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, options, message):
    (tmp_path / "models").mkdir()
    try:
        code = main(["relearn", *to_relearn(tmp_path, "http://127.0.0.1:9"), *options])
    except SystemExit as ended:
        code = ended.code
    error = capsys.readouterr().err
    assert code == 2
    assert message in error
    assert "Traceback" not in error


def test_an_unreachable_service_is_recorded_as_a_failure(tmp_path):
    (tmp_path / "models").mkdir()
    done = relearn(tmp_path, "http://127.0.0.1:9")
    assert done.returncode == 2
    assert record(tmp_path, 1)["outcome"] == "failed"
    assert "the service at http://127.0.0.1:9 did not answer" in record(tmp_path, 1)["why"]
    assert "Traceback" not in done.stderr


def test_json_is_the_record_of_the_run(tmp_path):
    (tmp_path / "models").mkdir()
    done = relearn(tmp_path, "http://127.0.0.1:9", "--json")
    assert done.returncode == 2
    record = json.loads(done.stdout)
    assert (record["command"], record["number"], record["outcome"]) == ("relearn", 1, "failed")
    kept = json.loads((tmp_path / "work" / "runs" / "000001.json").read_text())
    assert kept == {name: value for name, value in record.items() if name != "command"}
    assert "(failed)" in done.stderr


@pytest.mark.slow
def test_a_schedule_goes_on_after_a_failure_until_it_is_told_to_stop(tmp_path):
    (tmp_path / "models").mkdir()
    words = ("--service", "http://127.0.0.1:9", "--models", tmp_path / "models")
    words += ("--work", tmp_path / "work", "--every", "0.1s")
    process = subprocess.Popen(command("relearn", *words), stdout=subprocess.PIPE, text=True)
    second = tmp_path / "work" / "runs" / "000002.json"
    end = time.monotonic() + 60
    while not second.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "run 1: keep (failed)" in shown
    assert record(tmp_path, 2)["outcome"] == "failed"


def kill_relearn(folder, url, client, kills, rng):
    """Kill relearn at random moments; the service answers and its model is always a whole one."""
    known = {client.models().active}
    for i in range(kills):
        visit(client, f"k{i}", 30, 3, np.random.default_rng(i))
        words = ("--service", url, "--models", folder / "models", "--work", folder / "work")
        process = subprocess.Popen(
            command("relearn", *words, "--policy", "mTS"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(rng.uniform(0.2, 8.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        models = client.models()
        known |= {model.id for model in models.models}
        assert models.active in known
        assert client.decide(f"after-{i}").action is not None
    last = relearn(folder, url)
    assert last.returncode == 0, last.stdout + last.stderr
    runs = [json.loads(p.read_text()) for p in sorted((folder / "work/runs").glob("*.json"))]
    assert all(run["outcome"] != "planned" for run in runs)
    assert not (folder / "work" / "training.parquet").exists()


@pytest.mark.slow
def test_relearn_survives_many_kills(service):
    folder, url, client = service
    visit(client, "start", 300, 3, np.random.default_rng(1))
    kill_relearn(folder, url, client, 40, random.Random(1))


def learn_inverted(paths, options, progress):
    """Learn that the worst actions are the best."""
    table = polars.read_parquet(paths[-1]).with_columns(-polars.col("reward"))
    return fit(table, kind="arms", rewards="gaussian", bootstrap=0)


@pytest.mark.slow
def test_a_model_that_the_live_groups_speak_against_is_rolled_back(tmp_path):
    models = tmp_path / "models"
    save(GaussianArms(MEANS, NOISE, spread=0.05), models / "first")
    options = ("--policy", "mTS", "--explore", "0.5", "--models", str(models))
    options += ("--group", "holdout=uniform:0.5")
    rng = np.random.default_rng(0)
    with served(models / "first", tmp_path, *options) as url, Client(url, timeout=20.0) as client:
        first = client.models().active
        visit(client, "before", 1400, 3, rng)
        anything = LoopSettings(
            tmp_path / "work", models, policy="mTS", margin=-100.0, held_out=0.5
        )
        run = Relearner(anything, client, ServiceSource(client), learn_inverted).run()
        assert (run.decision, run.outcome) == ("activate", "done"), run.why
        assert client.models().active == run.candidate != first
        visit(client, "after", 2000, 3, rng)
        back = relearn(tmp_path, url)
        assert "roll back (done)" in back.stdout, back.stdout + back.stderr
        assert "the live group 'holdout' earns more" in record(tmp_path, 2)["why"]
        assert "in rounds 1-3 lies in" in record(tmp_path, 2)["why"]
        assert record(tmp_path, 2)["groups"]["holdout"]["high"] < 0
        assert client.models().active == first
