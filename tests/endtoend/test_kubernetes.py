"""The manifests of deploy/kubernetes are valid; service and image understand what they say."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from latentbandits.cli.main import build_parser
from latentbandits.serving.http.keys import Keys
from latentbandits.serving.settings import PREFIX, gather
from tests.processes.service import run_command

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"
PAGE = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
SETUPS = ("postgresql", "sqlite")
VERSION = kubernetes_validate.latest_version()


def resources(folder: Path) -> Iterator[dict[str, Any]]:
    """The resources of a folder's kustomization, its patches applied as kustomize would."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    found = []
    for name in kustomization["resources"]:
        path = folder / name
        if path.is_dir():
            found += resources(path)
        else:
            found += yaml.safe_load_all(path.read_text())
    for patch in kustomization.get("patches", ()):
        [target] = [r for r in found if r["kind"] == patch["target"]["kind"]]
        for step in yaml.safe_load(patch["patch"]):
            assert step["op"] == "add"
            *path, last = step["path"].strip("/").split("/")
            place = target
            for name in path:
                place = place[name]
            place[last] = step["value"]
    yield from found


def pods(kinds: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in kinds:
        spec = one.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield spec["template"]["spec"]


@pytest.mark.parametrize("setup", SETUPS)
def test_every_resource_is_valid(setup: str) -> None:
    found = list(resources(MANIFESTS / setup))
    assert {"Service", "CronJob", "NetworkPolicy", "PersistentVolumeClaim"} < {
        one["kind"] for one in found
    }
    for one in found:
        kubernetes_validate.validate(one, VERSION, strict=True)
    wrong = copy.deepcopy(found[0])
    wrong["spec"]["port"] = 8000
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSION, strict=True)


@pytest.mark.parametrize("setup", SETUPS)
def test_pods_have_no_rights_and_say_what_they_need(setup: str) -> None:
    user = int(re.findall(r"^USER (\d+)", (ROOT / "Containerfile").read_text(), re.M)[0])
    for pod in pods(list(resources(MANIFESTS / setup))):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] == user
        assert not pod["automountServiceAccountToken"]
        assert not pod["enableServiceLinks"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        if setup == "sqlite":
            volumes.add("data")  # the claim's template
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert not container["securityContext"]["allowPrivilegeEscalation"]
            assert {"requests", "limits"} <= container["resources"].keys()
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


@pytest.mark.parametrize("setup", SETUPS)
def test_commands_and_settings_are_understood(setup: str) -> None:
    commands = []
    for pod in pods(list(resources(MANIFESTS / setup))):
        [container] = pod["containers"]
        assert container["args"][0] == "latentbandits"
        words = container["args"][1:]
        build_parser(words[:1]).parse_args(words)
        commands.append(words[0])
        told = {one["name"]: one.get("value", "memory") for one in container["env"]}
        ours = {name: value for name, value in told.items() if name.startswith(PREFIX)}
        if ours:
            settings = gather({}, None, ours)
            assert settings.keys is not None
            assert not settings.play
            assert settings.drain < pod["terminationGracePeriodSeconds"]
            probes = [container[name] for name in ("startupProbe", "readinessProbe")]
            assert {probe["httpGet"]["path"] for probe in probes} == {"/readyz"}
    assert sorted(commands) == ["relearn", "serve"]


def page_commands(program: str) -> list[list[str]]:
    """Return the words of each command of the page that begins with this program."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    lines = (shlex.split(line, comments=True) for line in "".join(blocks).splitlines())
    return [words for words in lines if words[:1] == [program]]


@pytest.mark.parametrize("setup", SETUPS)
def test_the_page_makes_the_secrets_that_pods_read(setup: str) -> None:
    made = set()
    for words in page_commands("kubectl"):
        if words[1:4] == ["create", "secret", "generic"]:
            _, told = words[5].split("=", 1)  # --from-literal=NAME=VALUE
            made.add((words[4], told.partition("=")[0]))
    read = set()
    for pod in pods(list(resources(MANIFESTS / setup))):
        [container] = pod["containers"]
        sources = (one.get("valueFrom", {}).get("secretKeyRef") for one in container["env"])
        read |= {(one["name"], one["key"]) for one in sources if one}
        for volume in pod["volumes"]:
            if "secret" in volume:
                read.add((volume["secret"]["secretName"], "keys.toml"))
    assert read <= made
    if setup == "postgresql":  # SQLite has no secret for a database
        assert read == made


def test_the_keys_of_the_page_may_do_what_they_are_for(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.toml")
    allowed = {}
    for words in page_commands("latentbandits"):
        words[words.index("--keys") + 1] = file
        done = run_command(*words[1:])
        assert done.returncode == 0, done.stderr
        caller = Keys(file).caller(done.stdout.strip())
        assert caller is not None
        allowed[caller.name] = caller.scopes
    assert allowed == {
        "shop": {"decide", "reward"},
        "prometheus": {"read"},
        "loop": {"admin", "read"},
    }


def test_the_page_copies_the_first_model_to_where_it_is_read() -> None:
    [words] = [words for words in page_commands("kubectl") if words[1:3] == ["apply", "-f"]]
    loader = yaml.safe_load((ROOT / words[3]).read_text())
    kubernetes_validate.validate(loader, VERSION, strict=True)
    claim = loader["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
    [mount] = loader["spec"]["containers"][0]["volumeMounts"]
    [copied] = [words for words in page_commands("kubectl") if words[1] == "cp"]
    pod, _, path = copied[3].partition(":")
    assert pod == loader["metadata"]["name"]
    for setup in SETUPS:
        found = list(resources(MANIFESTS / setup))
        assert claim in {
            one["metadata"]["name"] for one in found if one["kind"] == "PersistentVolumeClaim"
        }
        served = {
            container["args"][2]
            for pod in pods(found)
            for container in pod["containers"]
            if container["args"][1] == "serve"
        }
        assert served == {path}
        assert path.startswith(f"{mount['mountPath']}/")
