"""Wheel, sdist, extras and lower bounds, each in a clean environment. Minutes: `make test-all`."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"

pytestmark = pytest.mark.slow


def run(*words, **options):
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, **options
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


FIRST_STEPS = """
import numpy as np
from latentbandits import Agent, GaussianArms, mmTS
agent = Agent(mmTS(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1)), seed=0)
decision = agent.decide("ann")
agent.update(decision, 0.9)
"""


@pytest.mark.parametrize(
    ("extra", "script"),
    [
        ("", FIRST_STEPS),
        (
            "[learning]",
            "from latentbandits.learning import fit, save_fit\n"
            "from latentbandits.learning.generate import generate_arms\n"
            "save_fit(fit(generate_arms(n_users=200, n_rounds=20).log, bootstrap=0), 'model')\n",
        ),
        ("[client]", "from latentbandits.client import Client; Client('http://localhost:1')"),
        ("[openfeature]", "from latentbandits.openfeature import LatentBanditsProvider"),
        (
            "[serving]",
            "from latentbandits import GaussianArms\n"
            "from latentbandits.serving import embed\n"
            "embed(GaussianArms([[0.9, 0.1]], noise=0.5))\n",
        ),
        ("[postgresql]", "import psycopg"),
    ],
)
def test_an_extra_installs_all_that_it_promises(distributions, tmp_path, extra, script):
    python = environment(tmp_path / "env", f"latentbandits{extra} @ {distributions[0].as_uri()}")
    run(python, "-W", "error", "-c", script, cwd=tmp_path)
    run(python, "-m", "latentbandits", "--help", cwd=tmp_path)


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
