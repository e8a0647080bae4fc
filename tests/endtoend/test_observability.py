"""The rules and the dashboard of deploy/observability name what a real service serves."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from latentbandits import BernoulliArms, save
from tests.processes.packages import install
from tests.processes.service import RunningService

FOLDER = Path(__file__).parents[2] / "deploy" / "observability"
METRIC = re.compile(r"\blatentbandits_[a-z_]+")
RECORDED = re.compile(r"\blatentbandits:[a-z_0-9:]+")
ROUTE = re.compile(r'route="([^"]+)"')


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> list[str]:
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(shown) >= len(panels) >= 10
    return shown + [rule["expr"] for rule in rules()]


def test_every_metric_of_a_panel_or_rule_is_served(tmp_path: Path) -> None:
    model = BernoulliArms.from_means([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]], 0.1)
    save(model, tmp_path / "model")
    arguments = (tmp_path / "model", "--holdout-share", "0.5", "--holdout-policy", "mmGreedy")
    with RunningService(*arguments, folder=tmp_path) as service, service.client() as http:
        for i in range(400):
            decided = http.post("/v1/decide", json={"session": f"s{i % 40}"}).json()
            reward = {"decision_id": decided["decision_id"], "value": float(i % 3 == 0)}
            assert http.post("/v1/reward", json=reward).status_code == 200
        text = http.get("/metrics").text
        families = {one.name: one for one in text_string_to_metric_families(text)}
        overview = http.get("/v1/overview").json()
        page = http.get("/").text
        for name in ("dashboard.json", "rules.yaml"):
            [link] = re.findall(rf'href="(observability/{name})"', page)
            assert http.get(f"/{link}").content == (FOLDER / name).read_bytes()
    samples = {sample.name for family in families.values() for sample in family.samples}
    routes = {s.labels["route"] for s in families["latentbandits_request_seconds"].samples}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for expression in expressions():
        assert set(METRIC.findall(expression)) <= samples
        assert set(RECORDED.findall(expression)) <= recorded
        assert set(ROUTE.findall(expression)) <= routes
    [age] = families["latentbandits_model_activated_seconds"].samples
    assert age.labels["model"] == overview["models"]["active"]
    assert abs(age.value - overview["models"]["swaps"][0]["time"]) < 1e-3
    predictions = sum(s.value for s in families["latentbandits_predictions"].samples)
    shown = [one["calibration"] for one in overview["series"] if one["calibration"] is not None]
    assert predictions == sum(one["rewards"] for one in shown) > 0
    assert overview["counts"]["unexplained"] == (
        families["latentbandits_unexplained_sessions"].samples[0].value
    )


@pytest.mark.slow
def test_promtool_accepts_the_rules_and_their_tests() -> None:
    if shutil.which("promtool") is None:
        install("prometheus")
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not here and cannot be installed: the RULES ARE NOT CHECKED")
    for words in (["check", "rules", "rules.yaml"], ["test", "rules", "rules-test.yaml"]):
        done = subprocess.run(
            ["promtool", *words], cwd=FOLDER, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_the_dashboard_has_the_types_of_grafana(tmp_path: Path) -> None:
    """Grafana itself does not run here: its own types of dashboards check the file, with tsc."""
    (tmp_path / "package.json").write_text('{"type": "module"}')
    words = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run([*words, "@grafana/schema", "typescript"], cwd=tmp_path, check=True, timeout=300)

    def complaints(dashboard: str) -> str:
        head = 'import type { Dashboard } from "@grafana/schema";\nexport const one: Dashboard = '
        (tmp_path / "dashboard.ts").write_text(head + dashboard)
        options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext"]
        done = subprocess.run(
            [tmp_path / "node_modules" / ".bin" / "tsc", *options, "dashboard.ts"],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        return done.stdout

    text = (FOLDER / "dashboard.json").read_text()
    assert complaints(text) == ""
    assert "gridPosition" in complaints(text.replace('"gridPos"', '"gridPosition"'))


def test_panels_have_their_own_ids_and_do_not_overlap() -> None:
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [
        (x, y)
        for box in (panel["gridPos"] for panel in panels)
        for x in range(box["x"], box["x"] + box["w"])
        for y in range(box["y"], box["y"] + box["h"])
    ]
    assert len(set(places)) == len(places)
    assert max(x for x, _ in places) < 24  # columns of Grafana's grid
