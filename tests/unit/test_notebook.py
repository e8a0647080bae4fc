"""How results look in a notebook: a short line, escaped HTML with pictures, tables."""

import base64
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure

from latentbandits import (
    UCB1,
    Agent,
    Ensemble,
    FunctionModel,
    GaussianArms,
    LinearGaussian,
    Log1pRewards,
    Markov,
    mmTS,
    simulate,
)
from latentbandits.environments import UsersOfModel
from latentbandits.evaluation import DecisionLog, evaluate
from latentbandits.extras import MissingExtraError
from latentbandits.learning import fit
from latentbandits.learning.generate import generate_arms
from latentbandits.models import registry

EVIL = "<script>alert('$1')</script>"
MODEL = GaussianArms([[0.9, 0.1, 0.4], [0.2, 0.8, 0.5]], noise=0.5, spread=0.1)


@pytest.fixture(scope="module")
def learned():
    log = generate_arms(n_users=200, n_rounds=15, n_states=2, n_actions=3).log
    return fit(replace(log, action_ids=(EVIL, "tea", "milk")), states=2, quick=True)


def simulated():
    return simulate(
        {"mmTS": mmTS(MODEL), "UCB1": UCB1(3)}, UsersOfModel(MODEL), horizon=10, n_runs=60
    )


def evaluated():
    rng = np.random.default_rng(0)
    action = rng.integers(3, size=(200, 2))
    reward = rng.random((200, 2))
    log = DecisionLog(action, reward, np.full(200, 2), 3, np.full((200, 2), 1 / 3))
    return evaluate({EVIL: mmTS(MODEL)}, log, against="logged")


def agent():
    one = Agent(mmTS(MODEL), seed=0)
    for user in ("ann", EVIL):
        one.update(one.decide(user), 0.9)
    return one


def random_models():
    rng = np.random.default_rng(0)
    kinds = [kind for kind in registry.kinds().values() if hasattr(kind, "random")]
    return [kind.random(rng, 3, 4) for kind in kinds]


class Elements(HTMLParser):
    """Collects the elements of a page; an element that is closed must be the open one."""

    def __init__(self, html):
        super().__init__()
        self.open, self.all, self.text = [], [], ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.all.append((tag, dict(attributes)))
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def check(shown, *, pictures=1):
    line = repr(shown)
    assert "\n" not in line
    assert len(line) < 200
    html = shown._repr_html_()
    page = Elements(html)
    assert {tag for tag, _ in page.all} <= {
        "div", "p", "b", "h2", "table", "tr", "th", "td", "img", "br"
    }  # fmt: skip
    images = [attributes["src"] for tag, attributes in page.all if tag == "img"]
    assert len(images) == pictures
    for image in images:
        assert base64.b64decode(image.partition("base64,")[2]).startswith(b"\x89PNG")
    frame, table = shown.to_polars(), shown.to_pandas()
    assert frame.columns == list(table.columns)
    assert str(frame.to_dict(as_series=False)) == str(table.to_dict("list"))  # NaN too
    return page.text, frame


def test_a_fit_shows_verdict_states_and_picture(learned):
    text, frame = check(learned)
    judged = learned.report["judgement"]
    assert judged["sentence"] in text
    assert EVIL in text  # as text, not as an element
    assert judged["recommended_policy"] in repr(learned)
    assert frame["action"].to_list() == [EVIL, "tea", "milk"] * 2
    np.testing.assert_array_equal(
        frame["reward"].to_numpy().reshape(2, 3), learned.model.expected_rewards(None)[0]
    )
    assert isinstance(learned.plot(), Figure)


def test_a_fit_that_was_not_assessed_shows_its_states(learned):
    plain = replace(learned, report=learned.report | {"judgement": None})
    text, _ = check(plain)
    assert "Held-out users" not in text
    drawn = plain.plot().axes[0]
    assert [label.get_text() for label in drawn.get_xticklabels()] == [EVIL, "tea", "milk"]


def test_results_show_every_policy():
    results = simulated()
    text, frame = check(results)
    assert "mmTS" in repr(results)
    assert "UCB1" in text
    assert frame.equals(results.frame())
    assert len(results.plot().axes) == 2


def test_an_evaluation_shows_estimates_and_differences():
    evaluation = evaluated()
    text, frame = check(evaluation)
    assert EVIL in text
    assert "Difference from logged" in text
    assert len(frame) == len(evaluation.estimates)


def test_an_agent_shows_its_sessions():
    one = agent()
    text, frame = check(one)
    assert "2 sessions" in repr(one)
    assert "ann" in text
    assert frame["probability"].to_list()[:2] == one.state_probabilities("ann").tolist()


def test_an_agent_without_sessions_or_states_has_nothing_to_draw():
    classic = Agent(UCB1(3))
    classic.decide("ann")
    for one in (Agent(mmTS(MODEL)), classic):
        check(one, pictures=0)
        with pytest.raises(ValueError, match="nothing to draw yet"):
            one.plot()


@pytest.mark.parametrize("model", random_models(), ids=lambda model: type(model).__name__)
def test_every_family_shows_its_states(model):
    text, frame = check(model)
    assert re.fullmatch(type(model).__name__ + r"\(3 states, 4 (actions|features)\)", repr(model))
    assert len(frame) == 12
    assert "33.3%" in text


@pytest.mark.parametrize(
    "model",
    [
        Ensemble([MODEL, MODEL]),
        Markov(MODEL, [[0.9, 0.1], [0.3, 0.7]]),
        Log1pRewards(MODEL),
        GaussianArms(np.ones((5, 2, 3)), noise=0.5),
        LinearGaussian(np.ones((5, 2, 3)), noise=0.5),
    ],
    ids=lambda model: repr(model),
)
def test_composed_models_and_instances_too(model):
    _, frame = check(model)
    assert len(frame) == 6


def test_a_model_whose_rewards_need_a_context_shows_its_states():
    model = FunctionModel(lambda x, action: x[:, None] * action, 0.5, n_states=2, n_actions=3)
    text, frame = check(model, pictures=0)
    assert frame.columns == ["state", "share"]
    assert "50.0%" in text


def test_a_policy_shows_its_model_in_short():
    assert repr(mmTS(MODEL)).startswith("mmTS(model=GaussianArms(2 states, 3 actions)")


def test_without_matplotlib_the_tables_remain(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "<img" not in MODEL._repr_html_()
    assert "pays most" in MODEL._repr_html_()
    with pytest.raises(MissingExtraError, match=r"plot needs .*pip install 'latentbandits\[learn"):
        MODEL.plot()
