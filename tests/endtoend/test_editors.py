"""Editors underline nothing in the examples: pyright, as Pylance runs it, finds no error."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

EVERY_KIND = """
import numpy as np

from latentbandits import (
    EXP4, Agent, AnyPolicy, BernoulliArms, Ensemble, GaussianArms, LinearGaussian, LogisticLinear,
    Markov, UCB1, load, mIDS, mTS, mUCB, mmGreedy, mmIDS, mmTS, mmUCB, save, simulate,
)
from latentbandits.environments import Synthetic
from latentbandits.policies import Exploring
from latentbandits.testing import check_policy

arms = GaussianArms([[0.9, 0.1]], noise=0.3, spread=0.1)
for model in (arms, BernoulliArms([[1.0]], 1.0), LinearGaussian(np.eye(2), 0.5), load("folder")):
    policy: AnyPolicy = mmTS(model)
    policies = [mTS(model), mUCB(model), EXP4(model), mIDS(model), mmIDS(model), mmUCB(model)]
    save(model, "folder")
mmTS(Markov.switching(arms, 0.1))
mTS(Ensemble([arms]))
mmTS(LogisticLinear(np.eye(2), np.ones((2, 2, 2))))
players = {"mTS": mTS, "UCB1": UCB1(10), "mine": Exploring(mmGreedy(arms), 0.1)}
print(simulate(players, Synthetic(model_noise=0.1), n_runs=10, horizon=10)["mTS"].regret.mean)
agent = Agent(mmTS(arms), seed=0)
agent.update(agent.decide("ann"), reward=1.0)
check_policy(mmTS(arms), n_actions=2)
"""


def errors(folder):
    actual = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(actual.stdout)
    assert report["summary"]["filesAnalyzed"] > 0, actual.stdout
    return [
        f"{Path(one['file']).name}:{one['range']['start']['line'] + 1}: {one['message']}"
        for one in report["generalDiagnostics"]
        if one["severity"] == "error"
    ]


def test_examples_have_no_errors_and_a_wrong_call_has(tmp_path):
    """README's blocks as one file, every example, a call of every kind; and a planted mistake."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "readme.py").write_text("\n".join(blocks))
    (tmp_path / "every_kind.py").write_text(EVERY_KIND)
    for example in (ROOT / "examples").glob("*.py"):
        (tmp_path / example.name).write_text(example.read_text())
    (tmp_path / "wrong.py").write_text("from latentbandits import mmTS\n\nmmTS([[0.9, 0.1]])\n")
    actual = errors(tmp_path)
    assert [one for one in actual if one.startswith("wrong.py:3")], "pyright sees no mistake at all"
    assert [one for one in actual if not one.startswith("wrong.py")] == []
