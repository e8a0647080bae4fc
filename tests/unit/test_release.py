"""The files of a release agree with each other."""

import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in (ROOT / ".github" / "workflows").glob("*.yml")
}


def test_every_declared_version_of_python_is_tested_on_linux_and_macos():
    prefix = "Programming Language :: Python :: 3."
    declared = {one.rpartition(" ")[2] for one in PROJECT["classifiers"] if one.startswith(prefix)}
    matrix = WORKFLOWS["test"]["jobs"]["test"]["strategy"]["matrix"]
    assert set(matrix["python"]) == declared
    assert {one.split("-")[0] for one in matrix["os"]} == {"ubuntu", "macos"}


@pytest.mark.parametrize("name", ["test", "release"])
def test_workflows_run_targets_and_files_that_exist(name):
    makefile = (ROOT / "Makefile").read_text()
    for job in WORKFLOWS[name]["jobs"].values():
        for step in job.get("steps", ()):
            words = step.get("run", "").split()
            if words[:1] == ["make"]:
                assert f"\n{words[1]}:" in makefile
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file()


def test_a_release_needs_the_tests_and_holds_no_token():
    publish = WORKFLOWS["release"]["jobs"]["publish"]
    assert set(publish["needs"]) == {"test", "build"}
    assert publish["permissions"] == {"id-token": "write"}
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_both_distributions_and_the_citation_have_one_version():
    related = tomllib.loads((ROOT / "related" / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["version"] == related["version"] == citation["version"]


def test_the_public_home_stands_in_one_place():
    """Elsewhere only the release's own files name it, to have it replaced and to check that."""
    words = ["git", "grep", "--files-with-matches", "PUBLIC-HOME"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    ours = {"pyproject.toml", "RELEASING.md", ".github/workflows/release.yml"}
    assert set(found.split()) - {"tests/unit/test_release.py"} == ours
