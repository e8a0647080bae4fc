"""The container file: built where an engine exists; its steps are run one by one elsewhere."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from latentbandits.client import Client

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
    return done.stdout


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


@pytest.mark.slow
@pytest.mark.skipif(ENGINE is None, reason="neither podman nor docker runs here; see the next test")
def test_it_builds():
    run([ENGINE, "build", "-f", "Containerfile", "-t", "latentbandits-test", "."], cwd=ROOT)
    run([ENGINE, "run", "--rm", "latentbandits-test", "latentbandits", "--help"])


@pytest.fixture
def image(tmp_path_factory):
    """A folder with what the steps make, which the image's user may enter but not change."""
    folder = tmp_path_factory.mktemp("image")
    for parent in (folder, *folder.parents[:2]):  # pytest makes them for their owner alone
        parent.chmod(0o755)
    source = folder / "src"
    source.mkdir()
    for argument in stage_steps("COPY")[0]:
        *names, target = argument.split()
        for name in names:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / target, symlinks=True)
            else:
                shutil.copy(ROOT / name, source / target / name)
    (build,), (prepare,) = stage_steps("RUN")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for command in (build, prepare):
        command = command.replace("/opt/bandit", f"{folder}/bandit").replace(
            "/data", f"{folder}/data"
        )
        run(["bash", "-ec", command], cwd=source, env=os.environ | {"PATH": path})
    shutil.rmtree(source)  # the second stage does not have it
    return folder


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become the image's user")
def test_its_steps_give_a_service_that_relearns(image):
    """The steps run one by one, then service, health check and loop as the image's user."""
    [user] = stage_steps("USER")[1]
    uid, gid = map(int, user.split(":"))
    program, models, keys = (
        image / "bandit/bin/latentbandits",
        image / "models",
        image / "keys.toml",
    )
    (image / "actions.csv").write_text("action\ntea\nmate\n")
    words = ("--actions", image / "actions.csv", "--rewards", "clicks", "--out", models / "first")
    run([program, "start", *words])
    for path in (models, *models.rglob("*")):
        os.chown(path, uid, gid)
    key = run([program, "key", "loop", "--keys", keys, "--scopes", "admin"]).split()[0]
    keys.chmod(0o444)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    settings = dict(word.split("=", 1) for word in stage_steps("ENV")[1][0].split())
    settings |= {
        "PATH": settings["PATH"].replace("/opt", str(image)).replace("$PATH", os.environ["PATH"]),
        "LATENTBANDITS_STORE": settings["LATENTBANDITS_STORE"].replace("/data", f"{image}/data"),
        "LATENTBANDITS_KEYS": str(keys),
        "LATENTBANDITS_PORT": str(port),
    }
    inside, become = {"env": settings, "cwd": "/"}, {"user": uid, "group": gid, "extra_groups": []}
    with suppress(PermissionError):  # where Python itself lies in a folder of root's
        run([program, "--version"], **inside, **become)
        inside |= become
    [(health, command)] = re.findall(
        r"(?s)HEALTHCHECK.*?CMD (\[.*?\])\n.*?^CMD (\[.*?\])$", FILE, re.M
    )
    words = [*json.loads(command)[:-1], str(models / "first")]
    with (image / "log").open("w") as log:
        served = subprocess.Popen(words, stdout=log, stderr=log, **inside)
    try:
        assert answer(f"{url}/readyz", served) == 200, (image / "log").read_text()
        assert answer(f"{url}/v1/models", served) == 401
        run(json.loads(health.replace(":8000", f":{port}")), **inside)
        with Client(url, key) as client:
            for name in ("ann", "bob"):
                client.reward(client.decide(name).decision_id, 1)
        loop = ("relearn", "--service", url, "--key", key, "--models", models)
        assert "pool (done)" in run([program, *loop, "--work", models / "relearn"], **inside)
    finally:
        served.terminate()
        served.wait(20)
    assert (image / "data" / "sessions.sqlite").exists()


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
