"""The tool behind `make mutate`: its list names lines of the source, its sample has a seed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from tools.mutation import EQUIVALENT, describe, equivalents, outcomes, sample

ROOT = Path(__file__).parents[2]

SHOWN = """\
# latentbandits.policies.classic.xǁEXP4ǁinit__mutmut_8: survived
--- src/latentbandits/policies/classic.py
+++ src/latentbandits/policies/classic.py
@@ -2,7 +2,7 @@
     low, high = self.reward_range
-    if low < high:
+    if low <= high:
         return None
"""


def test_every_equivalent_mutant_is_one_of_the_source():
    reasons = equivalents(EQUIVALENT.read_text())
    assert len(reasons) > 50
    gone = []
    for mutant in reasons:
        place, before, after = mutant.splitlines()
        path, _, function = place.partition("::")
        source = (ROOT / path).read_text()
        assert before.startswith("- ")
        assert after.startswith("+ ")
        lines = {line.partition("  #")[0].strip() for line in source.splitlines()}
        if f"def {function.rpartition('.')[2]}" not in source or before[2:] not in lines:
            gone.append(mutant)
    assert gone == []
    assert all(reasons.values())


def test_a_survivor_is_printed_as_the_list_has_it():
    name = "latentbandits.policies.classic.xǁEXP4ǁinit__mutmut_8"
    text = describe(name, SHOWN)
    place = "src/latentbandits/policies/classic.py::EXP4.init"
    assert text == f"{place}\n- if low < high:\n+ if low <= high:"
    assert equivalents(f"# Head.\n\n{text}\n  A reason.\n") == {text: "A reason."}


def test_the_sample_is_seeded():
    names = [f"mutant {i}" for i in range(1000)]
    first = set(sample(names, 100, seed=1))
    assert len(first) == 100
    assert first < set(sample(reversed(names), 200, seed=1))
    assert len(first & set(sample(names, 100, seed=2))) < 20


def test_an_interrupted_run_knows_what_is_left(tmp_path):
    codes = {"a": 1, "b": 0, "c": None, "d": 36, "e": 33, "f": -11}
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "module.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    assert outcomes(tmp_path) == {
        "a": "killed", "b": "survived", "c": "left", "d": "timeout", "e": "uncovered",
        "f": "killed",
    }  # fmt: skip


def test_the_tests_that_mutmut_runs_exist():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    named = settings["pytest_add_cli_args_test_selection"]
    assert [name for name in named if not (ROOT / name).is_file()] == []
