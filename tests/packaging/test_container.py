"""The container file: built where an engine exists; its steps are run one by one elsewhere."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from latentbandits import GaussianArms, save

ROOT = Path(__file__).parents[2]
FILE = (ROOT / "Containerfile").read_text()


def works(engine):
    """Whether an engine is installed and can be reached."""
    if shutil.which(engine) is None:
        return False
    return subprocess.run([engine, "info"], capture_output=True, check=False).returncode == 0


ENGINE = next((name for name in ("podman", "docker") if works(name)), None)


def steps(text):
    """Return the instructions of a container file as pairs of name and argument."""
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    return [tuple(line.split(None, 1)) for line in lines if line.strip()]


def stage_steps(name):
    """Return the arguments of all instructions of one name, stage by stage."""
    stages = []
    for instruction, argument in steps(FILE):
        if instruction == "FROM":
            stages.append([])
        elif instruction == name:
            stages[-1].append(argument)
    return stages


def run(words, **options):
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"


def test_it_copies_files_that_exist_and_installs_extras_that_exist():
    sent = (ROOT / ".dockerignore").read_text().split()
    for argument in stage_steps("COPY")[0]:
        *sources, _ = argument.split()
        for source in sources:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in sent
    project = (ROOT / "pyproject.toml").read_text()
    for extra in re.search(r"'\.\[([\w,]+)\]'", FILE)[1].split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra
    wheel, install = (" ".join(stage) for stage in stage_steps("RUN"))
    assert re.search(r"\[([\w,]+)\]", wheel)[1] == re.search(r"\[([\w,]+)\]", install)[1]


@pytest.mark.slow
@pytest.mark.skipif(ENGINE is None, reason="neither podman nor docker runs here; see the next test")
def test_it_builds():
    run([ENGINE, "build", "-f", "Containerfile", "-t", "latentbandits-test", "."], cwd=ROOT)
    run([ENGINE, "run", "--rm", "latentbandits-test", "latentbandits", "--help"])


@pytest.mark.slow
def test_its_steps_give_a_service_that_answers(tmp_path):
    """Copy, build wheels, install them without an index, and run the command with its settings."""
    source, wheels, data = tmp_path / "src", tmp_path / "wheels", tmp_path / "data"
    source.mkdir()
    data.mkdir()
    for argument in stage_steps("COPY")[0]:
        *names, target = argument.split()
        for name in names:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / target)
            else:
                shutil.copy(ROOT / name, source / target / name)
    (build,), (install,) = stage_steps("RUN")
    build, install = (text.replace("/wheels", str(wheels)) for text in (build, install))
    for name, command, folder in (("build", build, source), ("env", install, tmp_path)):
        run([sys.executable, "-m", "venv", tmp_path / name])
        first = shlex.split(command.split("&&")[0])
        run([tmp_path / name / "bin" / "python", "-m", *first], cwd=folder)

    save(GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1), tmp_path / "model")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    keys = tmp_path / "keys.toml"
    program = tmp_path / "env" / "bin" / "latentbandits"
    run([program, "key", "shop", "--keys", keys, "--scopes", "decide"], cwd=tmp_path)
    settings = dict(word.split("=", 1) for word in stage_steps("ENV")[1][0].split())
    settings |= {
        "LATENTBANDITS_STORE": settings["LATENTBANDITS_STORE"].replace("/data", str(data)),
        "LATENTBANDITS_KEYS": str(keys),
        "LATENTBANDITS_HOST": "127.0.0.1",
        "LATENTBANDITS_PORT": str(port),
    }
    words = json.loads(stage_steps("CMD")[1][0])
    words = [str(program), *words[1:-1], str(tmp_path / words[-1].lstrip("/"))]
    with (tmp_path / "log").open("w") as log:
        served = subprocess.Popen(words, env=os.environ | settings, stdout=log, stderr=log)
    try:
        assert answer(f"http://127.0.0.1:{port}/readyz", served) == 200, log.name
        assert answer(f"http://127.0.0.1:{port}/v1/models", served) == 401
    finally:
        served.terminate()
        served.wait(20)
    assert (data / "sessions.sqlite").exists()


def answer(url, process, seconds=60.0):
    """Return the status of a request, once the service listens."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            return urllib.request.urlopen(url, timeout=5).status
        except urllib.error.HTTPError as error:
            if error.code != 503:
                return error.code
        except OSError:
            pass
        time.sleep(0.2)
    return None
