"""From a table to a model, in Python."""

import time
from dataclasses import replace
from html import escape

import numpy as np
import pandas as pd
import polars as pl
import pytest

from latentbandits import GaussianArms, LinearGaussian, load
from latentbandits.learning import FitOptions, fit, fitting, reading
from latentbandits.learning.assess import tournament
from latentbandits.learning.assess.replay import replay
from latentbandits.learning.assess.report_tables import tables
from latentbandits.learning.fitting import _learn_all
from latentbandits.learning.generate import generate_arms
from latentbandits.learning.learners import Candidate, Selection, align
from latentbandits.learning.linear.learner import LinearLearner
from latentbandits.learning.logs.tables import LogError
from latentbandits.learning.reading import split_users
from latentbandits.learning.save import load_report, save_fit
from latentbandits.models import load_catalogue
from latentbandits.models.artefacts import load_notes
from tests.unit.test_selection import ratings_log


def frame_of(log):
    return {
        "user": [f"u{u}" for u in log.users],
        "action": [f"a{a}" for a in log.actions],
        "reward": log.rewards,
    }


@pytest.fixture(scope="module")
def truth():
    return generate_arms(n_users=400, n_rounds=20, n_states=2, n_actions=4, seed=5)


@pytest.fixture(scope="module")
def arms(truth):
    names = {"a0": "zero", "a1": "one"}
    return fit(frame_of(truth.log), names=names, bootstrap=4, seed=1)


@pytest.fixture(scope="module")
def linear():
    log, made = ratings_log(
        n_users=300, n_actions=70, n_states=2, density=0.4, separation=2.0, seed=2
    )
    return fit(log, rank=3, states=2, reg=1.0, bootstrap=3), log, made


def test_arms_find_the_truth(arms, truth):
    model = arms.model
    assert isinstance(model, GaussianArms)
    order = align(model.means, truth.means)
    assert np.abs(model.means[order] - truth.means).max() < 0.1
    assert arms.catalogue.ids == ("a0", "a1", "a2", "a3")
    assert arms.catalogue.names == ("zero", "one", "a2", "a3")


def test_the_report_of_arms(arms, truth):
    report = arms.report
    assert report["settings"]["kind"] == "arms"
    assert report["settings"]["states"] == 2
    assert [row["states"] for row in report["selection"] if row["chosen"]] == [2]
    assert report["log"]["repeated_pairs"] == truth.log.n_duplicates > 0
    assert "reward of its own" in report["log"]["repeated_pairs_are"]
    assert report["held_out"]["rmse"] < report["held_out"]["rmse_of_action_means"]
    assert abs(report["held_out"]["coverage"][2]["covered"] - 0.9) < 0.03
    assert sum(report["held_out"]["uniform_histogram"]) == pytest.approx(1.0)
    assert report["uncertainty"]["noise"] == pytest.approx(0.5, abs=0.02)
    epsilons = [row["bootstrap_all"] for row in report["uncertainty"]["epsilon"]]
    assert epsilons == sorted(epsilons)
    best = report["states"][0]["best"][0]
    assert best["reward"] == pytest.approx(arms.model.means[0].max())


def test_linear_finds_the_states(linear):
    actual, log, made = linear
    assert isinstance(actual.model, LinearGaussian)
    assert actual.catalogue.features.shape == (log.n_actions, 5)
    rewards = actual.model.weights @ actual.catalogue.features.T
    expected = made.model.weights @ made.action_vectors.T
    order = align(rewards, expected)
    error = np.sqrt(np.mean((rewards[order] - expected) ** 2))
    assert error < 0.25 * expected.std()
    assert actual.model.noise == pytest.approx(made.model.noise, rel=0.1)
    assert actual.report["uncertainty"]["covariance_shrinkage"] is not None


def test_the_same_seed_gives_the_same_model(truth, arms):
    again = fit(pl.DataFrame(frame_of(truth.log)), bootstrap=4, seed=1, assess=False)
    np.testing.assert_array_equal(again.model.means, arms.model.means)
    np.testing.assert_array_equal(again.model.spread, arms.model.spread)


def test_spectral_agrees_with_em(truth, arms):
    table = pd.DataFrame(frame_of(truth.log))
    spectral = fit(table, method="spectral", states=2, bootstrap=0, assess=False)
    order = align(spectral.model.means, arms.model.means)
    np.testing.assert_allclose(spectral.model.means[order], arms.model.means, atol=0.01)


def test_without_a_bootstrap_only_the_prior_speaks(truth):
    report = fit(truth.log, states=2, bootstrap=0, assess=False).report
    assert report["uncertainty"]["typical_error"] is None
    assert report["uncertainty"]["epsilon"][0]["bootstrap_all"] is None
    assert report["uncertainty"]["epsilon"][0]["prior_all"] > 0


def test_saved_and_loaded(linear, tmp_path):
    actual, _, _ = linear
    save_fit(actual, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").weights, actual.model.weights)
    assert load_catalogue(tmp_path / "model").ids == actual.catalogue.ids
    assert load_report(tmp_path / "model") == actual.report
    page = (tmp_path / "model" / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert "http" not in page.replace("http-equiv", ""), "the page needs no other file"
    for table in tables(actual.report):
        if table.title != "The states":  # a list of actions for each on the page
            cells = [escape(cell) for row in table.rows for cell in row]
            assert all(f"<td>{cell}</td>" in page for cell in cells), table.title


def test_names_cannot_break_the_page(truth, tmp_path):
    actual = fit(frame_of(truth.log), states=2, quick=True, names={"a0": "<script>alert(1)"})
    save_fit(actual, tmp_path / "model")
    page = (tmp_path / "model" / "report.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"states": 401}, "401 states are more than the log's 400 users"),
        ({"kind": "linear", "rank": 5}, "rank 5 is above what the data hold: .* rank 4 at most"),
        ({"kind": "arms", "rank": 2}, "rank is for"),
        ({"kind": "arms", "reg": 2.0}, "reg is for"),
        ({"kind": "linear", "method": "spectral"}, "spectral is for models of --kind arms"),
        ({"method": "gibbs"}, "em, spectral"),
        ({"kind": "tree"}, "auto, linear, arms"),
        ({"states": 0}, "at least 1"),
        ({"bootstrap": -1}, "bootstrap"),
        ({"duplicates": "first"}, "keep, mean, last"),
    ],
)
def test_settings_that_cannot_be(truth, settings, message):
    with pytest.raises(LogError if "rank" in settings else ValueError, match=message):
        fit(truth.log, **settings)


def test_auto_takes_the_next_best_where_all_users_make_too_small_a_cluster():
    """What the users kept allowed, all of them may not: the choice falls to what can be learned."""
    log, _ = ratings_log(n_users=120, n_actions=40, n_states=2, density=0.4, separation=2.0)
    learner = LinearLearner(reg=1.0)
    rows = [Candidate(n, 2, -float(n), 1.0, np.full(5, -float(n))) for n in (60, 61, 2)]
    rows[0], rows[1] = (replace(row, evidence=1.0, by_user=np.ones(5)) for row in rows[:2])
    split = split_users(log, 0)
    chosen = learner.choose(rows)
    selection = Selection(learner, tuple(rows), chosen, None, None)
    selection, learned = _learn_all(selection, log, split)
    assert selection.chosen.n_states == learned.model.n_states == 2
    assert selection.learned.model.n_states == 2
    assert [row.evidence is None for row in selection.rows] == [True, True, False]
    assert "of all users" in selection.rows[0].reason
    only = Candidate(60, 2, -1.0, 1.0, np.ones(5))
    with pytest.raises(ValueError, match="smallest cluster"):
        _learn_all(Selection(learner, (only,), only, None, None), log, split)


def test_one_state_has_no_others(truth):
    state = fit(truth.log, states=1, bootstrap=0, assess=False).report["states"][0]
    assert state["more_than_others"] == state["less_than_others"] == []
    assert len(state["best"]) == 4


def test_a_step_that_lowers_the_evidence_is_left_out(truth, monkeypatch):
    options = {"kind": "arms", "rewards": "gaussian", "states": 2, "assess": False}
    plain = fit(truth.log, **options, bootstrap=0)
    assert plain.report["steps"] == []
    right = fit(truth.log, **options, bootstrap=3)
    assert [step["used"] for step in right.report["steps"]] == [True]

    def destroyed(learner, learned, disagreement, log):
        """The planted bug: widening that leaves nothing of what was learned."""
        model = learned.model
        wide = GaussianArms(0 * model.means, model.noise, 3.0, model.state_prior)
        return replace(learned, model=wide), {}

    monkeypatch.setattr(fitting, "widened", destroyed)
    actual = fit(truth.log, **options, bootstrap=3)
    (step,) = actual.report["steps"]
    assert not step["used"]
    assert "the bootstrap widening was left out" in actual.report["warnings"][0]
    assert step["nats_per_user"] < -2 * step["stderr"]
    np.testing.assert_array_equal(actual.model.spread, plain.model.spread)


def test_a_transform_that_lowers_the_evidence_is_left_out():
    log = generate_arms(n_users=400, n_rounds=20, n_states=2, n_actions=4, seed=5).log
    table = frame_of(log) | {"reward": log.rewards - log.rewards.min()}
    options = {"kind": "arms", "states": 2, "bootstrap": 0, "assess": False}
    actual = fit(table, **options, transform="sqrt")
    assert [step["used"] for step in actual.report["steps"]] == [False]
    assert isinstance(actual.model, GaussianArms)
    squares = fit(table | {"reward": table["reward"] ** 2}, **options, transform="sqrt")
    assert [step["used"] for step in squares.report["steps"]] == [True]
    assert squares.model.transform == "sqrt"


def test_options_are_one_value(truth):
    settings = {"kind": "arms", "states": 2, "bootstrap": 0, "assess": False}
    options = FitOptions(**settings)
    given = fit(truth.log, options, seed=3)
    np.testing.assert_array_equal(given.model.means, fit(truth.log, **settings, seed=3).model.means)
    with pytest.raises(TypeError, match="colour"):
        fit(truth.log, options, colour="red")


def test_an_unknown_option_is_named_with_the_nearest(truth):
    with pytest.raises(TypeError, match="unknown option of fit 'asess': did you mean 'assess'"):
        fit(truth.log, asess=False)


def test_a_fit_that_is_not_assessed_is_saved_without_a_policy(truth, tmp_path):
    actual = fit(truth.log, kind="arms", states=2, bootstrap=0, assess=False)
    assert actual.report["judgement"] is None
    save_fit(actual, tmp_path / "model")
    assert load(tmp_path / "model").n_states == 2
    assert "recommended_policy" not in load_notes(tmp_path / "model")
    assert not (tmp_path / "model" / "report.html").exists()
    assert load_report(tmp_path / "model") == actual.report


class Written:
    """Progress that writes down the descriptions of its tasks."""

    def __init__(self):
        self.tasks = []

    def start(self, description, total):
        self.tasks.append(description)

    def advance(self, steps):
        pass


def test_a_fit_says_how_long_it_will_take(monkeypatch):
    """How good the estimate is, depends on the machine: here it is only asked for and announced."""
    options = FitOptions(rewards="gaussian")
    log = generate_arms(n_users=150, n_rounds=20, n_states=2, n_actions=4, seed=4).log
    with reading.read_users(log, options, Written()) as users:
        assert fitting.expected_seconds(users, options) > 0
    monkeypatch.setattr(fitting, "LEAST_LEFT", -1000.0)
    bar = Written()
    fit(log, options, progress=bar)
    assert sum("s left)" in task for task in bar.tasks) >= 3
    monkeypatch.undo()
    fitting.Expecting(bar, time.process_time() - 1).start("late", 1)
    assert bar.tasks[-1] == "late"


def test_a_quick_fit_plays_particles_once(truth, monkeypatch):
    passes = []

    def counted(*arguments, **keywords):
        passes.append(keywords["passes"])
        return replay(*arguments, **keywords)

    monkeypatch.setattr(tournament.replays, "replay", counted)
    few = truth.log.of_users(np.arange(120))
    clicks = replace(few, rewards=(few.rewards > 0.5).astype(float))
    options = {"kind": "linear", "reg": 1.0, "rank": 1, "states": 2, "quick": True}
    assert fit(clicks, **options).report["judgement"]["verdict"] is not None
    assert passes == [1, 1, 1]  # one state against several; the verdict; the choice of a policy
    assert fit(few, **options).report["judgement"]["verdict"] is not None
    assert passes[3:] == [8, 8, 8]


def test_a_quick_fit_chooses_on_few_users_and_plays_two_policies(truth, monkeypatch):
    monkeypatch.setattr(reading, "QUICK_ON", 2_000)
    quick = fit(truth.log, rewards="gaussian", quick=True)
    assert quick.report["engine"]["users_chosen_on"] == 100
    assert quick.report["settings"]["bootstrap"] == 0
    played = {row["policy"] for row in quick.report["judgement"]["replay"]}
    on_model = {"mmGreedy", "mmBayesUCB(quantile=0.7)"}
    assert played == {"uniform", "popularity", "one state", "TS", *on_model}
    order = align(quick.model.means, truth.means)
    assert np.abs(quick.model.means[order] - truth.means).max() < 0.1  # learned from all users
