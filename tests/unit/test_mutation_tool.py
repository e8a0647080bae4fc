"""The tool behind `make mutate`: its lists name what there is, and an interrupted run goes on."""

from __future__ import annotations

from pathlib import Path

from tools.mutation.__main__ import Results, equivalents, sample
from tools.mutation.covering import test_files as covered_files
from tools.mutation.mutants import key, mutants

ROOT = Path(__file__).parents[2]


def test_every_equivalent_mutant_is_one_of_the_source():
    reasons = equivalents()
    paths = {name.partition("::")[0] for name in reasons}
    actual = {mutant.name for path in paths for mutant in mutants(str(ROOT / path))}
    here = {name.replace(f"{ROOT}/", "") for name in actual}
    assert len(here) == sum(len(mutants(str(ROOT / path))) for path in paths)  # one mutant a name
    assert [name for name in reasons if name not in here] == []
    assert all(reasons.values())


def test_the_sample_is_seeded(monkeypatch):
    monkeypatch.chdir(ROOT)
    first = {mutant.name for mutant in sample(100, seed=1)}
    assert len(first) == 100
    assert first < {mutant.name for mutant in sample(200, seed=1)}
    assert len(first & {mutant.name for mutant in sample(100, seed=2)}) < 20


def test_the_tests_that_mutants_meet_exist():
    assert [path for path in covered_files() if not (ROOT / path).exists()] == []


def test_an_interrupted_run_knows_its_outcomes(tmp_path):
    first, second, third = mutants(str(ROOT / "src/latentbandits/policies/classic/ucb.py"))[:3]
    results = Results(tmp_path / "results.jsonl")
    results.add(first, "killed", "tests/a.py::test", [])
    results.add(second, "survived", "", ["tests/a.py::test 1"])
    again = Results(tmp_path / "results.jsonl")
    assert again.find(first, ["tests/a.py::test"]) == "killed"
    assert again.find(first, ["tests/b.py::test"]) is None  # the test that noticed it has gone
    assert again.find(second, ["tests/a.py::test"]) is None
    assert again.passed(second) == ["tests/a.py::test 1"]
    assert again.outcome(third) is None


def test_a_line_that_a_killed_process_left_half_written_is_dropped(tmp_path):
    first, second = mutants(str(ROOT / "src/latentbandits/policies/classic/ucb.py"))[:2]
    path = tmp_path / "results.jsonl"
    Results(path).add(first, "killed", "tests/a.py::test", [])
    with path.open("a") as file:
        file.write('{"key": "abc", "outc')
    again = Results(path)
    again.add(second, "survived", "", [])
    assert [Results(path).outcome(mutant) for mutant in (first, second)] == ["killed", "survived"]


def test_an_outcome_is_kept_until_the_code_of_the_module_changes(tmp_path):
    texts = {"first": '"""One."""\nx = 1 + 2\n', "docstring": '"""Two."""\nx = 1 + 2  # sum\n',
             "code": '"""One."""\nx = 1 + 3\n'}  # fmt: skip
    keys = {}
    for name, text in texts.items():
        path = tmp_path / "module.py"
        path.write_text(text)
        keys[name] = key(mutants(str(path))[0])
    assert keys["first"] == keys["docstring"] != keys["code"]
