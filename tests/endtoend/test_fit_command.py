"""fit, inspect and simulate as a user runs them."""

import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
import threading
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from latentbandits import GaussianArms, LinearGaussian, LogisticLinear, Markov, load, save
from latentbandits.cli import main
from latentbandits.learning.generate import generate_arms
from latentbandits.models.arms.dirichlet import BernoulliArms
from latentbandits.models.artefacts import load_notes
from tests.unit.test_selection import ratings_log

pytestmark = pytest.mark.usefixtures("few_tuned_users")

COLUMNS = ["--user", "who", "--action", "what", "--reward", "paid"]


@contextmanager
def on_a_terminal(columns):
    """Make standard output a terminal that is so wide; yields what returns the text on it."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
    chunks, kept = [], sys.stdout

    def read():
        with suppress(OSError):  # the other end was closed
            while chunk := os.read(master, 65536):
                chunks.append(chunk)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(slave, "w") as terminal, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        patch.delenv("COLUMNS", raising=False)
        sys.stdout = terminal
        try:
            yield lambda: re.sub(r"\x1b\[[0-9;]*m|\r", "", b"".join(chunks).decode())
        finally:
            sys.stdout = kept
    reader.join()
    os.close(master)


def write_log(log, path, **more):
    columns = {"who": log.users, "what": log.actions, "paid": log.rewards}
    pl.DataFrame(columns | more).write_csv(path)
    return str(path)


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arms")
    log = generate_arms(n_users=200, n_rounds=20, n_states=2, n_actions=4, seed=3).log
    names = np.array(["north", "south", "east", "west"])[log.actions]
    path = write_log(log, folder / "log.csv", title=names)
    out = str(folder / "model")
    code = main(["fit", path, *COLUMNS, "--name-column", "title", "--bootstrap", "2", "--out", out])
    assert code == 0
    return folder, path, out


def test_fit_writes_all_and_nothing_else(arms):
    folder, _, out = arms
    assert sorted(p.name for p in folder.iterdir()) == ["log.csv", "model"]
    assert {p.name for p in (folder / "model").iterdir()} == {
        "arrays.safetensors", "manifest.json", "report.json", "report.png", "report.html",
        "results.json", "verdict.png",
    }  # fmt: skip
    report = json.loads((folder / "model" / "report.json").read_text())
    assert report["settings"]["states"] == 2
    assert {a["name"] for a in report["states"][0]["best"]} <= {"north", "south", "east", "west"}
    assert load(out).n_states == 2


def test_results_for_scripts(arms):
    folder = arms[0] / "model"
    actual = json.loads((folder / "results.json").read_text())
    assert {"command", "settings", "seconds", "warnings", "family", "n_states",
            "recommended_policy", "verdict", "replay"} <= set(actual)  # fmt: skip
    assert (actual["command"], actual["family"], actual["n_states"]) == ("fit", "gaussian", 2)
    assert actual["verdict"] in ("helps", "harms", "no difference", "cannot tell")
    assert {"policy", "rounds", "reward", "stderr", "over_popularity",
            "over_popularity_stderr"} <= set(actual["replay"][0])  # fmt: skip
    policies = {row["policy"] for row in actual["replay"]}
    assert {
        "uniform",
        "popularity",
        "one state",
        "factorisation",
        "TS",
        actual["recommended_policy"],
    } <= policies
    notes = load_notes(folder)
    assert notes["recommended_policy"] == actual["recommended_policy"]
    assert notes["verdict"] == actual["verdict"]
    page = (folder / "report.html").read_text()
    assert page.index(notes["sentence"][:20]) < page.index("The states")


def test_warnings_go_to_stderr_and_strict_says_so(tmp_path, capsys):
    path = tmp_path / "log.csv"
    rng = np.random.default_rng(0)
    rows = [f"u{u},a{rng.integers(3)},1.5" for u in range(40) for _ in range(6)]
    path.write_text("\n".join(["user,action,reward", *rows]) + "\n")
    command = ["fit", str(path), "--user", "user", "--action", "action", "--reward", "reward",
               "--states", "1", "--quick", "--noise", "0.5"]  # fmt: skip
    assert main([*command, "--out", str(tmp_path / "a")]) == 0
    assert "warning: all 240 rewards are 1.5" in capsys.readouterr().err
    assert main([*command, "--out", str(tmp_path / "b"), "--strict"]) == 3
    actual = json.loads((tmp_path / "b" / "results.json").read_text())
    assert any("all 240 rewards" in warning for warning in actual["warnings"])


def test_inspect_prints_it_again(arms, capsys):
    assert main(["inspect", arms[2]]) == 0
    printed = capsys.readouterr().out
    for word in ("GaussianArms", "Evidence of held-out users", "north", "How wrong it may be"):
        assert word in printed


@pytest.mark.slow
def test_verdict_and_states_fit_on_a_screen_and_verbose_prints_all(tmp_path, capsys):
    rows = ["user,action,reward"]
    rng = np.random.default_rng(0)
    names = ["a [bold] name of an action that is longer than any column", "b", "c [/x]"]
    for user in range(120):
        for _ in range(12):
            action = rng.integers(3)
            mean = 1.0 if action == user % 3 else 0.0
            rows.append(f"{user},{names[action]},{rng.normal(mean, 0.3):.3f}")
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    command = ["fit", str(tmp_path / "log.csv"), "--states", "3", "--bootstrap", "0"]
    with on_a_terminal(columns=80) as printed:
        assert main([*command, "--out", str(tmp_path / "model")]) == 0
    lines = printed().splitlines()
    report = json.loads((tmp_path / "model" / "report.json").read_text())
    sentence = report["judgement"]["sentence"]
    assert sentence.startswith(lines[0].strip())
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    assert any("c [/x]" in line for line in lines)
    assert not any("How wrong it may be" in line for line in lines)
    assert main([*command, "--verbose", "--out", str(tmp_path / "model")]) == 0
    verbose = capsys.readouterr().out
    assert " ".join(verbose.split()).startswith(sentence)
    page = (tmp_path / "model" / "report.html").read_text()
    for words in ("Held-out users on their real rewards", "How wrong it may be", "The log"):
        assert verbose.count(words) == 1
        assert words in page


def test_json_is_one_document_and_all_else_goes_to_standard_error(arms, tmp_path, capsys):
    _, path, out = arms
    model = tmp_path / "model"
    words = ["fit", path, *COLUMNS, "--states", "2", "--quick", "--json"]
    assert main([*words, "--out", str(model)]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == json.loads((model / "results.json").read_text())
    assert "page in" in printed.err
    assert main(["inspect", out, "--json"]) == 0
    printed = capsys.readouterr()
    shown = json.loads(printed.out)
    assert (shown["model"], shown["n_states"], shown["n_actions"]) == ("GaussianArms", 2, 4)
    assert shown["report"] == json.loads(Path(out, "report.json").read_text())
    assert shown["notes"]["verdict"] == shown["report"]["judgement"]["verdict"]
    assert "How wrong it may be" in printed.err


def test_simulate_replays_real_rewards(arms, capsys, tmp_path):
    _, path, out = arms
    command = ["simulate", out, "--users", path, *COLUMNS, "--replay", "--horizon", "20"]
    policies = ["--policies", "auto", "uniform", "mTS"]
    assert main([*command, *policies, "--out", str(tmp_path / "r")]) == 0
    assert "real rewards of log.csv" in capsys.readouterr().out
    actual = json.loads((tmp_path / "r" / "results.json").read_text())
    assert actual["command"] == "simulate"
    rows = {row["policy"]: row for row in actual["replay"]}
    recommended = load_notes(out)["recommended_policy"]
    assert set(rows) == {recommended, "uniform", "mTS", "popularity"}
    assert rows["uniform"]["over_popularity"] < 0 < rows["mTS"]["reward"]


def test_simulate_from_the_model_and_from_a_log(arms, capsys, tmp_path):
    _, path, out = arms
    common = ["--runs", "20", "--horizon", "30", "--jobs", "1", "--policies", "TS", "mTS", "mmTS"]
    assert main(["simulate", out, *common, "--out", str(tmp_path / "a")]) == 0
    users = ["--users", path, *COLUMNS]
    assert main(["simulate", out, *common, *users, "--out", str(tmp_path / "b")]) == 0
    for name in "ab":
        results = json.loads((tmp_path / name / "results.json").read_text())
        regret = {row["policy"]: row["regret"] for row in results["policies"]}
        assert set(regret) == {"TS", "mTS", "mmTS"}
        assert regret["mTS"] < regret["TS"]
        assert (tmp_path / name / "simulate.png").stat().st_size > 10_000
        assert pl.read_parquet(tmp_path / name / "curves.parquet").height == 3 * 30
    assert "worst 10%" in capsys.readouterr().out


@pytest.mark.slow
def test_a_linear_model_end_to_end(tmp_path, capsys):
    log, _ = ratings_log(n_users=150, n_actions=80, n_states=2, density=0.4, separation=2.0)
    path = write_log(log, tmp_path / "log.csv")
    out = str(tmp_path / "model")
    settings = ["--rank", "2", "--states", "2", "--reg", "1", "--quick"]
    assert main(["fit", path, *COLUMNS, *settings, "--out", out]) == 0
    assert isinstance(load(out), LinearGaussian)
    play = ["simulate", out, "--runs", "10", "--horizon", "20", "--jobs", "1", "--offered", "5"]
    chosen = ["--policies", "LinTS", "mmTS", "mmUCB"]
    assert main([*play, *chosen, "--out", str(tmp_path / "a")]) == 0
    users = ["--users", path, *COLUMNS]
    assert main([*play, *chosen, *users, "--out", str(tmp_path / "b")]) == 0
    assert "latentbandits:" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--user", "nobody"], "no column nobody; the columns there are: who, what, paid, title"),
        (["--reward", "title"], "title is not a finite number in 4,000 of 4,000 rows"),
        (["--states", "500"], "500 states are more than the log's 200 users"),
        (["--kind", "linear", "--rank", "9"], "rank 9 is above what the data hold"),
        (["--name-column", "nome"], "no column nome"),
        (["--items", "x.csv"], "--items needs --name-column"),
        (["--method", "spectral", "--states", "5"], "at most 3 states apart, not 5"),
    ],
)
def test_a_bad_fit_is_one_line_and_leaves_nothing(arms, tmp_path, capsys, arguments, message):
    out = tmp_path / "out" / "model"
    command = ["fit", arms[1], *COLUMNS, "--bootstrap", "0", "--out", str(out), *arguments]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not out.exists()
    assert not any((tmp_path / "out").iterdir()) if (tmp_path / "out").exists() else True


def test_a_folder_that_is_no_model_is_not_overwritten(arms, tmp_path, capsys):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("...")
    command = ["fit", arms[1], *COLUMNS, "--out", str(tmp_path / "thesis")]
    assert main(command) == 2
    assert "not a saved model" in capsys.readouterr().err
    assert (tmp_path / "thesis" / "chapter.tex").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policies", "mmT"], "did you mean 'mmTS'?"),
        (["--policies", "LinTS"], "LinTS needs a model whose actions have features"),
        (["--users", "log.csv"], "--users needs --user, --action and --reward"),
        (["--replay"], "--replay needs --users"),
    ],
)
def test_a_bad_simulation(arms, tmp_path, capsys, arguments, message):
    assert main(["simulate", arms[2], *arguments, "--out", str(tmp_path / "sim")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "sim").exists()


def test_users_of_another_catalogue(arms, tmp_path, capsys):
    table = pl.DataFrame({"who": [1, 2], "what": ["up", "down"], "paid": [1, 2]})
    table.write_csv(tmp_path / "log.csv")
    users = ["--users", str(tmp_path / "log.csv"), *COLUMNS]
    assert main(["simulate", arms[2], *users, "--out", str(tmp_path / "sim")]) == 2
    assert "share 0 actions; the log has such as 'down', the model such as '0'" in (
        capsys.readouterr().err
    )


def test_inspect_of_what_is_no_model(tmp_path, capsys):
    assert main(["inspect", str(tmp_path)]) == 2
    assert "not a saved model" in capsys.readouterr().err


def test_a_model_of_every_session_is_not_played(tmp_path, capsys):
    save(GaussianArms(np.zeros((4, 1, 2)), 0.5), tmp_path / "instances")
    assert main(["inspect", str(tmp_path / "instances")]) == 0
    assert main(["simulate", str(tmp_path / "instances"), "--out", str(tmp_path / "sim")]) == 2
    assert "an instance for each of 4 sessions" in capsys.readouterr().err
    assert not (tmp_path / "sim").exists()


CLICKS = BernoulliArms([[2.0, 8.0], [8.0, 2.0]], [[8.0, 2.0], [2.0, 8.0]])
FEATURES = LogisticLinear(np.eye(2), np.tile(np.eye(2), (2, 1, 1)), n_particles=64)


@pytest.mark.parametrize(
    ("model", "warning"),
    [(CLICKS, ""), (Markov.switching(CLICKS, 0.1), ""), (FEATURES, "without a catalogue")],
    ids=["BernoulliArms", "Markov", "LogisticLinear"],
)
def test_simulate_plays_every_family(tmp_path, capsys, model, warning):
    save(model, tmp_path / "model")
    command = [
        "simulate",
        str(tmp_path / "model"),
        "--runs",
        "60",
        "--horizon",
        "20",
        "--jobs",
        "1",
    ]
    policies = ["--policies", "mmTS", "Exploring(policy=mTS, e=0.2)", "popularity", "uniform"]
    assert main([*command, *policies, "--out", str(tmp_path / "sim")]) == 0
    results = json.loads((tmp_path / "sim" / "results.json").read_text())
    assert list(results)[:4] == ["command", "settings", "seconds", "warnings"]
    assert results["command"] == "simulate"
    assert results["settings"]["policies"][1] == "Exploring(policy='mTS', e=0.2)"
    rows = {row["policy"]: row for row in results["policies"]}
    assert rows["mmTS"]["regret"] < rows["uniform"]["regret"]
    assert (rows["mmTS"]["first_rounds"], rows["mmTS"]["last_rounds"]) == (10, 10)
    assert warning in " ".join(results["warnings"])
    assert warning in capsys.readouterr().err


def test_simulate_plays_the_recommended_policy_first(tmp_path):
    model = str(tmp_path / "model")
    save(CLICKS, model)
    advice = {"command": "fit", "recommended_policy": "mmTS(catch_all=True)"}
    Path(model, "results.json").write_text(json.dumps(advice))
    command = ["simulate", model, "--runs", "5", "--horizon", "4", "--jobs", "1"]
    assert main([*command, "--out", str(tmp_path / "all")]) == 0
    results = json.loads((tmp_path / "all" / "results.json").read_text())
    played = [row["policy"] for row in results["policies"]]
    assert played[0] == "mmTS(catch_all=True)"
    assert {"TS", "UCB1", "mTS", "mmTS", "popularity", "uniform"} <= set(played)
    assert main([*command, "--policies", "auto", "--out", str(tmp_path / "one")]) == 0
    results = json.loads((tmp_path / "one" / "results.json").read_text())
    assert [row["policy"] for row in results["policies"]] == ["mmTS(catch_all=True)"]


@pytest.mark.slow
def test_auto_without_a_recommendation_is_tuned(tmp_path, capsys):
    save(CLICKS, tmp_path / "model")
    command = ["simulate", str(tmp_path / "model"), "--runs", "5", "--horizon", "4", "--jobs", "1"]
    assert main([*command, "--policies", "auto", "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().err
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    [row] = results["policies"]
    assert f"has no recommended policy; {row['policy']} is best" in said


def test_serve_and_simulate_have_the_same_policies(arms):
    """The names that disagreed: TS, UCB1, EXP4 and mmUCB, on a fitted model."""
    from latentbandits.cli.simulate import policy_texts
    from latentbandits.models import load, load_catalogue
    from latentbandits.serving.engine.models import make_policy
    from latentbandits.simulation.simulate import maker

    model, catalogue = load(arms[2]), load_catalogue(arms[2])
    texts = ["TS", "UCB1", "EXP4", "mmUCB", "popularity"]
    for text in policy_texts(texts, arms[2], model, catalogue.features):
        played = maker(text, averages=catalogue.averages)(model)
        served = make_policy(text, model, catalogue)
        for field in fields(played):
            if field.name != "model":
                same = getattr(played, field.name) == getattr(served, field.name)
                assert np.all(same), text
