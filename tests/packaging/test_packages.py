"""Wheel, sdist, extras and lower bounds, each in a clean environment. Minutes: `make test-all`."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from latentbandits import GaussianArms, save
from tests.processes.java import find_java
from tests.processes.service import RunningService, free_port

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"

pytestmark = pytest.mark.slow


def run(*words, **options):
    variables = os.environ | options.pop("env", {})
    variables.pop("PYTHONPATH", None)  # only what was installed is found
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        check=False,
        env=variables,
        **options,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def distributions(tmp_path_factory):
    """The wheel and the sdist, built from this checkout."""
    out = tmp_path_factory.mktemp("dist")
    run(UV, "build", "--quiet", "--out-dir", out, ROOT)
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


def environment(folder, *requirements, options=()):
    python = folder / "bin" / "python"
    run(UV, "venv", "--quiet", "--python", sys.executable, folder)
    run(UV, "pip", "install", "--quiet", "--python", python, *options, *requirements)
    return python


def test_the_distributions_are_complete_and_clean(distributions):
    wheel, sdist = distributions
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    names = zipfile.ZipFile(wheel).namelist()
    assert "latentbandits/py.typed" in names
    assert "latentbandits/serving/page/index.html" in names
    strays = ("latentbandits/", f"latentbandits-{wheel.name.split('-')[1]}.dist-info/")
    assert all(name.startswith(strays) for name in names)
    with tarfile.open(sdist) as archive:
        inside = archive.getnames()
    assert any(name.endswith("/src/latentbandits/__init__.py") for name in inside)
    assert not any("/.venv/" in name or name.endswith(".pyc") for name in inside)


def test_the_index_shows_images_and_links_with_addresses(distributions):
    with zipfile.ZipFile(distributions[0]) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
        page = wheel.read(name).decode().split("\n\n", 1)[1]
    targets = re.findall(r'(?:src|srcset)="([^"]*)"', page) + re.findall(r"\]\(([^)]*)\)", page)
    assert len(targets) > 10
    assert [target for target in targets if not target.startswith("https://")] == []


FIRST_STEPS = """
import numpy as np
from latentbandits import Agent, GaussianArms, mmTS
agent = Agent(mmTS(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1)), seed=0)
decision = agent.decide("ann")
agent.update(decision, 0.9)
"""


LEARN = """
from latentbandits.learning import fit, save_fit
from latentbandits.learning.generate import generate_arms
save_fit(fit(generate_arms(n_users=200, n_rounds=20).log, bootstrap=0), "model")
"""

ASK = """
import os
from latentbandits.client import Client
with Client(os.environ["SERVICE"]) as client:
    decided = client.decide("ann")
    assert client.reward(decided.decision_id, 0.9).status == "applied"
"""

FLAG = """
import os
from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from latentbandits.client import Client
from latentbandits.openfeature import LatentBanditsProvider
with Client(os.environ["SERVICE"]) as client:
    api.set_provider(LatentBanditsProvider(client, {"banner": ["0", "1"]}))
    details = api.get_client().get_string_details("banner", "none", EvaluationContext("ben"))
    assert details.value in ("0", "1"), details
    assert details.flag_metadata["propensity"] > 0
"""

SERVE = """
import os, subprocess, sys
from latentbandits import GaussianArms, save
from latentbandits.client import Client
save(GaussianArms([[0.9, 0.1]], noise=0.5), "model")
port = os.environ["PORT"]
words = ["serve", "model", "--store", os.environ["STORE"], "--port", port, "--policy", "mmTS"]
served = subprocess.Popen([sys.executable, "-m", "latentbandits", *words])
try:
    with Client(f"http://127.0.0.1:{port}", retries=10, deadline=60.0) as client:
        decided = client.decide("ann")  # is repeated until the service answers
        assert client.reward(decided.decision_id, 0.9).status == "applied"
finally:
    served.terminate()
    served.wait(20)
"""

SPARK = """
import polars as pl
from latentbandits.learning import fit
log = [(u, a, float((u * 7 + a * 3) % 5)) for u in range(200) for a in range(8)]
pl.DataFrame(log, ["user", "action", "reward"], orient="row").write_parquet("log.parquet")
result = fit("log.parquet", engine="spark", master="local[1]", states=2, bootstrap=0)
assert result.report["engine"]["name"] == "spark", result.report["engine"]
"""

EXPERIMENT = "reproduce theory --runs 20 --jobs 1 --out theory"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    save(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1), folder / "model")
    with RunningService(folder / "model", folder=folder) as running:
        yield running.url


def try_extra(distributions, folder, extra, script, **variables):
    """Install the wheel with an extra, and nothing else, and run a script of its users."""
    python = environment(folder / "env", f"latentbandits{extra} @ {distributions[0].as_uri()}")
    run(python, "-W", "error", "-c", script, cwd=folder, env=variables)
    run(python, "-m", "latentbandits", "--help", cwd=folder)
    return python


@pytest.mark.parametrize(("extra", "script"), [("", FIRST_STEPS), ("[learning]", LEARN)])
def test_an_extra_brings_all_that_it_needs(distributions, tmp_path, extra, script):
    try_extra(distributions, tmp_path, extra, script)


def test_serving_alone_serves(distributions, tmp_path):
    variables = {"STORE": "sqlite:sessions.sqlite", "PORT": str(free_port())}
    try_extra(distributions, tmp_path, "[serving]", SERVE, **variables)
    assert (tmp_path / "sessions.sqlite").exists()


@pytest.mark.parametrize(("extra", "script"), [("[client]", ASK), ("[openfeature]", FLAG)])
def test_a_client_alone_talks_to_a_service(distributions, tmp_path, service, extra, script):
    try_extra(distributions, tmp_path, extra, script, SERVICE=service)


def test_experiments_alone_reproduce_the_paper(distributions, tmp_path):
    python = try_extra(distributions, tmp_path, "[experiments]", LEARN)
    run(python, "-m", "latentbandits", *EXPERIMENT.split(), cwd=tmp_path)
    assert (tmp_path / "theory" / "results.json").exists()


def test_postgresql_keeps_the_sessions(distributions, tmp_path, postgresql_url):
    variables = {"STORE": postgresql_url, "PORT": str(free_port())}
    try_extra(distributions, tmp_path, "[serving,postgresql]", SERVE, **variables)


def test_spark_alone_learns(distributions, tmp_path):
    if not find_java():
        pytest.skip("NO JAVA: install a JRE (apt install openjdk-17-jre-headless) to test Spark")
    try_extra(distributions, tmp_path, "[spark]", SPARK)


def test_every_extra_is_tried():
    tried = {"learning", "serving", "client", "openfeature", "experiments", "postgresql", "spark"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) == tried | {"all"}  # the lowest versions are all's


def test_the_lowest_versions_work(distributions, tmp_path):
    """Every lower bound in pyproject.toml is true."""
    wheel = f"latentbandits[all] @ {distributions[0].as_uri()}"
    python = environment(tmp_path / "env", wheel, options=("--resolution", "lowest-direct"))
    log = "user,action,reward\n" + "\n".join(
        f"{u},{a},{(u * 7 + a * 3) % 5}" for u in range(60) for a in range(8)
    )
    (tmp_path / "log.csv").write_text(log)
    fit = ("fit", "log.csv", "--out", "model", "--bootstrap", "0", "--states", "2")
    run(python, "-m", "latentbandits", *fit, cwd=tmp_path)
    run(python, "-m", "latentbandits", "inspect", "model", cwd=tmp_path)
    theory = ("reproduce", "theory", "--runs", "20", "--jobs", "1")
    done = subprocess.run(
        [str(python), "-m", "latentbandits", *theory],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    progress = done.stderr.splitlines()
    assert [line for line in progress if not line.startswith("theory: ")] == []
    run(python, "-c", FIRST_STEPS, cwd=tmp_path)
