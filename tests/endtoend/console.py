"""Run the `console` blocks of a page as a reader would, and compare what they print.

A line that begins with `$ ` is a command; the lines below it are its output, in which `...` stands
for any number of lines. All commands of a page run in one shell, in a folder with the examples of
the repository. `latentbandits serve` runs in the background until the page ends; from then on ids
and random draws differ from run to run, so that numbers are not compared. `make demo` has a service
too. Of JSON only keys are compared.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_READY = "curl -s -o /dev/null --retry 60 --retry-delay 1 --retry-connrefused http://127.0.0.1:{port}/readyz"


STANDS_FOR = {
    "make demo": "python -m examples.demo",
    "make paper": "latentbandits reproduce synthetic --out out/synthetic",
}
"""Commands that would set up an environment first, and what they then run."""


def commands(page: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a page's console blocks, each with the lines that it should print."""
    results: list[tuple[str, list[str]]] = []
    for language, body in BLOCK.findall(page):
        if language != "console":
            continue
        for line in body.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                results.append((line[2:], []))
            elif results:
                results[-1][1].append(line)
    return results


def run(page: str, folder: Path, seconds: float) -> list[list[str]]:
    """Run the commands of a page in `folder` and return the lines that each printed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = []
    for i, (command, _) in enumerate(commands(page)):
        served = command.startswith("latentbandits serve")
        command = STANDS_FOR.get(command, command)
        script += [f"echo; echo @@@{i}", f"{command} &" if served else command]
        script += [_READY.format(port=port)] if served else []
    text = "\n".join(script).replace("localhost:8000", f"localhost:{port}")
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    for name in ("examples", "tools"):
        (folder / name).symlink_to(ROOT / name)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "130",
        "LATENTBANDITS_PORT": str(port),
    }
    shell = subprocess.Popen(
        ["bash", "-eu", "-c", text],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        shell.wait(seconds)
    finally:
        with suppress(ProcessLookupError):  # everything has ended by itself
            os.killpg(shell.pid, signal.SIGKILL)
        out, errors = shell.communicate()
    assert shell.returncode == 0, f"{out[-3000:]}\n{errors[-3000:]}"
    parts = re.split(r"^@@@\d+\n", out, flags=re.MULTILINE)[1:]
    return [[line.rstrip() for line in part.splitlines() if line.strip()] for part in parts]


def differences(page: str, printed: list[list[str]]) -> list[str]:
    """Return a line for every command of a page that printed something else than is shown."""
    result, served = [], False
    for (command, shown), lines in zip(commands(page), printed, strict=True):
        served = served or command == "make demo"  # has a service of its own
        line = difference(shown, lines, numbers=not served)
        served = served or command.startswith("latentbandits serve")
        if line is not None:
            result.append(f"$ {command}\n  not as shown: {line}\n  printed: {lines}")
    return result


def difference(shown: list[str], printed: list[str], *, numbers: bool = True) -> str | None:
    """Return the first shown line that was not printed in its place; None if all were.

    `numbers` says whether numbers are compared. A command without shown lines may print anything.

    >>> difference(["a", "...", "3 s; done"], ["a", "b", "c", "14 s; done"])
    >>> difference(["a", "c"], ["a", "b", "c"])
    'c'
    """
    place, anywhere = 0, False
    for line in [line.rstrip() for line in shown if line.strip()]:
        if line == "...":
            anywhere = True
            continue
        wanted = _comparable(line, numbers)
        rest = printed[place:] if anywhere else printed[place : place + 1]
        match = next((i for i, one in enumerate(rest) if _comparable(one, numbers) == wanted), None)
        if match is None:
            return line
        place, anywhere = place + match + 1, False
    return None if anywhere or place >= len(printed) or not shown else printed[place]


def _comparable(line: str, numbers: bool) -> str:
    try:
        value = json.loads(line)
    except ValueError:
        masked = re.sub(r"\b\d+ s;", "N s;", line.strip())
        masked = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{16}\b", "CURSOR", masked)
        if numbers:
            return masked
        masked = re.sub(r"─+", "─", masked)  # a table is as wide as its numbers
        return " ".join(re.sub(r"[-+±]?\d[\d.,]*(e[-+]?\d+)?", "N", masked).split())
    return str(sorted(value)) if isinstance(value, dict) else line.strip()
