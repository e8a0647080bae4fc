"""The command line as a user runs it: a process, its files, its words, its exit code."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import polars
import pytest

from latentbandits.cli.main import COMMANDS, build_parser, main

POLICIES = ("UCB1", "TS", "EXP4", "mUCB", "mmUCB", "mTS", "mmTS", "mIDS", "mmIDS", "mmGreedy")


def run(*arguments, cwd, **environment):
    command = [sys.executable, "-m", "latentbandits", *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}
    )


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    folder = tmp_path_factory.mktemp("synthetic")
    options = ("--runs", 20, "--horizon", 120, "--jobs", 2, "--out", "results")
    return folder / "results", run("reproduce", "synthetic", *options, cwd=folder)


@pytest.mark.slow
def test_reproduce_leaves_everything_it_promises(synthetic):
    folder, done = synthetic
    assert done.returncode == 0, done.stderr
    names = {path.name for path in folder.iterdir()}
    assert names == {"results.json", "curves.parquet", "synthetic.png", "synthetic.svg"}
    assert (folder / "synthetic.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (folder / "synthetic.svg").read_text()


@pytest.mark.slow
def test_results_json_has_the_documented_form(synthetic):
    folder, _ = synthetic
    results = json.loads((folder / "results.json").read_text())
    assert list(results)[:4] == ["command", "settings", "seconds", "warnings"]
    assert (results["command"], results["experiment"]) == ("reproduce", "synthetic")
    assert results["settings"]["runs"] == 20
    assert results["seconds"] > 0
    rows = {(row["policy"], row["setting"]): row for row in results["policies"]}
    for policy in POLICIES:
        for setting in ("sigma0=0.05", "sigma0=0.2"):
            row = rows[policy, setting]
            for name in ("regret", "reward", "first_rounds_reward", "last_rounds_reward"):
                assert isinstance(row[name], float)
                assert row[f"{name}_stderr"] >= 0
            assert row["worst_decile_reward"] is None  # too few runs
            assert (row["first_rounds"], row["last_rounds"]) == (50, 60)
    ids = [claim["id"] for claim in results["claims"]]
    assert ids == ["S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "B1", "B2",
                   "T1", "C1", "T2", "C2"]  # fmt: skip
    for claim in results["claims"]:
        assert claim.keys() >= {"id", "claim", "measured", "holds"}
    for bound in results["claims"][-4:]:  # None: uniform play keeps the bound too
        assert bound["holds"] is not False, bound


@pytest.mark.slow
def test_curves(synthetic):
    folder, _ = synthetic
    curves = polars.read_parquet(folder / "curves.parquet")
    assert curves.columns == ["policy", "sigma0", "round", "mean", "stderr", "worst_decile_mean"]
    assert len(curves) == 2 * (len(POLICIES) + 1) * 120
    assert curves["round"].max() == 120
    assert set(curves["sigma0"]) == {0.05, 0.2}


@pytest.mark.slow
def test_tables_on_the_terminal(synthetic):
    _, done = synthetic
    for policy in POLICIES:
        assert policy in done.stdout
    for words in ("regret", "worst 10%", "Claims", "predicts", "measured", "holds"):
        assert words in done.stdout
    for line in done.stderr.splitlines():  # no bar, but lines every few seconds
        assert line.startswith("synthetic: "), line


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers_whatever_the_jobs(tmp_path):
    words = ["reproduce", "synthetic", "--runs", "12", "--horizon", "10", "--policies", "mTS", "TS"]
    assert main([*words, "--jobs", "1", "--out", str(tmp_path / "1")]) == 0
    assert run(*words, "--jobs", "3", "--out", tmp_path / "3", cwd=tmp_path).returncode == 0
    numbers = []
    for jobs in ("1", "3"):
        actual = json.loads((tmp_path / jobs / "results.json").read_text())
        numbers.append((actual["policies"], actual["claims"]))
    assert numbers[0] == numbers[1]


@pytest.mark.slow
def test_errata_and_theory(tmp_path, capsys):
    out = str(tmp_path / "errata")
    arguments = ["--runs", "200", "--horizon", "300", "--jobs", "1", "--out", out]
    assert main(["reproduce", "errata", *arguments]) == 0
    results = json.loads((tmp_path / "errata" / "results.json").read_text())
    assert {claim["id"]: claim["holds"] for claim in results["claims"]}["E1 0.2"] is True
    printed = capsys.readouterr().out
    assert "as printed" in printed
    out = str(tmp_path / "theory")
    arguments = ["--runs", "20", "--horizon", "30", "--jobs", "1", "--out", out]
    assert main(["reproduce", "theory", *arguments]) == 0
    assert "0 of 4 claims hold, 4 undecided" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policies", "mmST"), "unknown policy 'mmST': did you mean 'mmTS'?"),
        (("--policies", "mmts"), "did you mean 'mmTS'?"),
        (("--out", "file/inside"), "cannot write to --out file/inside: Not a directory"),
        (("--runs", "0"), "--runs: 0 is below 1"),
        (("--runs", "many"), "--runs: 'many' is not a whole number"),
        (("--seed", "-1"), "--seed"),
        (("--hirizon", "9"), "unknown option --hirizon: did you mean --horizon?"),
    ],
)
def test_bad_input_gets_one_clear_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    try:
        code = main(["reproduce", "synthetic", *arguments])
    except SystemExit as ended:
        code = ended.code
    printed = capsys.readouterr()
    assert code == 2
    assert message in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""


def test_an_unwritable_folder_is_found_before_the_work(tmp_path):
    out = Path("/proc/self/results")  # not even root can write there
    done = run("reproduce", "synthetic", "--out", out, cwd=tmp_path)
    assert done.returncode == 2
    assert f"cannot write to --out {out}" in done.stderr


def test_nothing_half_written_is_left(tmp_path, monkeypatch):
    import latentbandits.report.files as report

    def broken(*arguments):
        raise OSError("No space left on device")

    monkeypatch.setattr(report, "write_results", broken)
    arguments = ["--runs", "20", "--horizon", "10", "--jobs", "1", "--out", str(tmp_path / "out")]
    assert main(["reproduce", "theory", *arguments]) == 2
    assert list((tmp_path / "out").iterdir()) == []


def test_a_missing_extra_is_named(tmp_path):
    for package, words, extra in [
        ("rich", ("reproduce", "theory"), "experiments"),
        ("msgspec", ("serve", "model", "--port", "0"), "serving"),
        ("polars", ("evaluate", "log.csv", "--model", "m"), "learning"),
    ]:
        blocked = tmp_path / f"{package}.py"
        blocked.write_text(f"raise ModuleNotFoundError('no {package}', name='{package}')")
        done = run(*words, cwd=tmp_path, PYTHONPATH=str(tmp_path))
        blocked.unlink()
        assert done.returncode == 2
        expected = f"needs the package '{package}': pip install 'latentbandits[{extra}]'"
        assert expected in done.stderr
        assert "Traceback" not in done.stderr


def test_a_library_import_names_the_extra(tmp_path):
    (tmp_path / "polars.py").write_text("raise ModuleNotFoundError('none', name='polars')")
    code = "from latentbandits.learning import fit"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert "pip install 'latentbandits[learning]'" in done.stderr


def test_help_and_version(tmp_path):
    shown = run("--help", cwd=tmp_path).stdout
    assert all(f"    {command}" in shown for command in COMMANDS)
    assert "exit codes:" in shown
    assert run("--version", cwd=tmp_path).stdout.startswith("latentbandits ")
    bare = run(cwd=tmp_path)
    assert (bare.returncode, bare.stdout, bare.stderr) == (2, "", shown)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fti", "log.csv"], "unknown command 'fti': did you mean 'fit'?"),
        (["--hepl"], "unknown option '--hepl': did you mean '--help'?"),
        (
            ["fit", "log.csv", "--bootstrp=3"],
            "unknown option --bootstrp: did you mean --bootstrap?",
        ),
        (["tune"], "the following arguments are required: MODEL; see latentbandits tune --help"),
        (["reproduce", "sinthetic"], "invalid choice: 'sinthetic'"),
    ],
)
def test_what_is_misspelt_gets_one_line(words, message, tmp_path):
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_in_use_is_one_sentence_before_anything_starts(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("serve", "--demo", "--port", taken.getsockname()[1], cwd=tmp_path)
    assert done.returncode == 2
    assert "Address already in use; choose another with --host or --port" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["--version"], ["--help"], []])
def test_a_command_that_is_not_asked_for_is_not_imported(words):
    """Version and help need no numerics beyond the package itself, and no command's module."""
    heavy = ("polars", "rich", "sklearn", "matplotlib", "msgspec", "uvicorn", "scipy.stats")
    rooms = ("learning", "serving", "evaluation", "experiments", "simulation", "loop")
    code = (
        "import sys; from latentbandits.cli import main\n"
        f"try: main({words!r})\n"
        "except SystemExit: pass\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert "latentbandits.cli.main" in loaded
    unwanted = {*heavy, *(f"latentbandits.{room}" for room in rooms)}
    unwanted |= {f"latentbandits.cli.{command}" for command in COMMANDS}
    assert not unwanted & set(loaded)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["f"], {"fit"}),
        (["fit", "--ki"], {"--kind"}),
        (["fit", "--kind", "l"], {"linear"}),
        (["serve", "--swap", "m"], {"migrated"}),
        (["reproduce", "synth"], {"synthetic"}),
        (["fit", "lo"], set()),  # the shell completes names of files
    ],
)
def test_bash_completes(words, expected, completion):
    line = " ".join(f"'{word}'" for word in ["latentbandits", *words])
    script = (
        f"source {completion}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _latentbandits; "
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True)
    assert (set(done.stdout.split()), done.stderr) == (expected, "")


@pytest.fixture(scope="module")
def completion(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "script"
    path.write_text(run("completion", "bash", cwd=path.parent).stdout)
    return path


def test_scripts_of_other_shells(capsys):
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload -U +X bashcompinit")
    assert main(["completion", "fish"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("-l kind -r -f -a 'auto linear arms'" in line for line in lines)
    assert any("__fish_use_subcommand -a relearn" in line for line in lines)


def test_importing_is_light(tmp_path):
    heavy = ("matplotlib", "polars", "sklearn", "starlette", "rich", "pandas", "scipy.stats")
    code = f"import sys, latentbandits; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_every_documented_command_parses():
    """Each `latentbandits ...` line in README and docs is a command that exists."""
    root = Path(__file__).parents[2]
    parser = build_parser()
    lines = [
        shlex.split(
            line.removeprefix("$ ").removeprefix(".venv/bin/").split(" #")[0].split(" > ")[0]
        )
        for page in (root / "README.md", *(root / "docs").rglob("*.md"))
        for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        for line in block.replace("\\\n", " ").splitlines()
        if re.match(r"(\$ )?(\.venv/bin/)?latentbandits ", line)
    ]
    assert lines
    for words in lines:
        if words[1:] != ["--version"]:
            parser.parse_args(words[1:])
