"""Learning from logs of lists: the click model, examination by position, and what is refused."""

import json

import numpy as np
import polars as pl
import pytest

from latentbandits.learning import fit
from latentbandits.learning.lists import learn_examination, not_identified
from latentbandits.learning.logs.rows import Log
from latentbandits.learning.logs.tables import LogError
from latentbandits.learning.save import save_fit
from latentbandits.models.artefacts import load, load_click_model, save
from latentbandits.models.clicks import Cascade, PositionClicks, Positions
from latentbandits.policies import mmTS
from latentbandits.policies.lists import decide_list, update_list

COLUMNS = {"list": "page", "position": "place"}
LOOKED = (1.0, 0.6, 0.3)
K, LENGTH = 6, 3
RATES = np.array([[0.6, 0.1, 0.5, 0.1, 0.3, 0.2], [0.1, 0.6, 0.1, 0.5, 0.2, 0.3]])


def generated(click_model, n_users=200, lists=8, seed=0):
    """Return a table of lists of three random actions shown to users of two kinds."""
    rng = np.random.default_rng(seed)
    n = n_users * lists
    user = np.repeat(np.arange(n_users), lists)
    shown = np.argsort(rng.random((n, K)), axis=1)[:, :LENGTH]
    attracted = rng.random((n, LENGTH)) < RATES[(user % 2)[:, None], shown]
    clicked = click_model.react(attracted.astype(float), rng.random((n, LENGTH)))
    return pl.DataFrame(
        {
            "user": np.repeat(user, LENGTH),
            "action": [f"a{action}" for action in shown.ravel()],
            "reward": pl.Series(clicked.ravel()).fill_nan(None),
            "page": np.repeat(np.arange(n), LENGTH),
            "place": np.tile(np.arange(1, LENGTH + 1), n),
        }
    )


def quickly(table, **options):
    plain = {"kind": "arms", "assess": False, "bootstrap": 0, "states": 2}
    return fit(table, **{**COLUMNS, **plain, **options})


def test_a_cascade_is_learned_from_its_observed_rows():
    empty = generated(Cascade())
    zeros = empty.with_columns(pl.col("reward").fill_null(0.0))
    not_observed = empty["reward"].null_count()
    ordinary = fit(empty.filter(pl.col("reward").is_not_null()), assess=False, bootstrap=0,
                   states=2, kind="arms", rewards="bernoulli")  # fmt: skip
    for table in (empty, zeros):
        found = quickly(table, click_model="cascade", kind="arms", rewards="bernoulli")
        assert found.click_model == Cascade()
        assert found.report["lists"]["not_observed"] == not_observed
        assert np.allclose(found.model.alpha, ordinary.model.alpha)
    # Zeros that nobody saw would lower every rate.
    assert quickly(zeros, click_model="each", kind="arms").model.expected_rewards(None).mean() < (
        0.8 * ordinary.model.expected_rewards(None).mean()
    )


@pytest.mark.parametrize("kind", [Cascade(), Positions(LOOKED), Positions((1.0, 1.0, 1.0))])
def test_auto_finds_the_click_model(kind):
    table = generated(kind, n_users=300).with_columns(pl.col("reward").fill_null(0.0))
    found = quickly(table)
    wanted = "each" if kind == Positions((1.0, 1.0, 1.0)) else kind.name
    assert found.click_model.name == wanted
    assert set(found.report["lists"]["candidates"]) == {"each", "cascade", "positions"}


def test_a_log_whose_lists_end_at_the_click_is_a_cascade():
    found = quickly(generated(Cascade(), n_users=50))
    assert found.report["lists"]["reason"] == "every list ends at its click"


@pytest.mark.slow
def test_examination_and_rates_are_learned_together_and_saved(tmp_path):
    found = quickly(generated(Positions(LOOKED), n_users=600), click_model="positions")
    assert np.allclose(found.click_model.examination, LOOKED, atol=0.06)
    means = found.model.expected_rewards(None)[0]
    order = [0, 1] if means[0, 0] > means[1, 0] else [1, 0]
    assert np.abs(means[order] - RATES).max() < 0.1
    save_fit(found, tmp_path / "model")
    assert load_click_model(tmp_path / "model") == found.click_model
    model = load(tmp_path / "model")
    assert isinstance(model, PositionClicks)
    assert np.array_equal(model.examination, found.click_model.examination)
    policy, rng = mmTS(model), np.random.default_rng(0)
    shown = decide_list(policy, policy.init(), None, rng, LENGTH, found.click_model)
    update_list(policy, policy.init(), None, shown, [[0, 1, 0]], found.click_model)


def test_a_saved_model_of_positions_names_its_click_model(tmp_path):
    model = PositionClicks([[9.0, 1.0]], [[1.0, 9.0]], examination=[1.0, 0.5])
    save(model, tmp_path / "model")
    assert load_click_model(tmp_path / "model") == Positions((1.0, 0.5))


def test_examination_of_rare_clicks_is_the_ratio_of_click_rates():
    """With one rate for all actions the answer is known; slow EM steps stop far from it."""
    n, rates = 6_000, np.array([0.02, 0.01])
    places = np.tile([0, 1], n)
    clicks = np.zeros(2 * n)
    for place, rate in enumerate(rates):
        rows = np.flatnonzero(places == place)
        clicks[rows[np.arange(n) % round(1 / rate) == 0]] = 1
    users = np.arange(2 * n) // 20
    ids = tuple(map(str, range(users.max() + 1))), tuple(map(str, range(10)))
    actions = (np.arange(2 * n) // 2) % 10
    log = Log(users, actions, clicks, *ids, lists=np.arange(2 * n) // 2, positions=places)
    assert learn_examination(log, 1, 0).values == pytest.approx([1.0, 0.5], abs=0.01)


def test_a_given_examination_is_taken_as_it_is():
    table = generated(Positions(LOOKED), n_users=50)
    assert quickly(table, examination=[1, 0.5, 0.25]).click_model == Positions((1, 0.5, 0.25))
    with pytest.raises(LogError, match="examination has 2 positions, so lists cannot have 3"):
        quickly(table, examination=[1, 0.5])


@pytest.mark.slow
def test_the_report_shows_lists(tmp_path):
    table = generated(Positions(LOOKED), n_users=60)
    found = quickly(table, click_model="positions", assess=True, quick=True)
    judged = found.report["judgement"]
    assert judged["length"] == LENGTH
    assert "a list compared with showing the best average 3 actions" in judged["sentence"]
    save_fit(found, tmp_path / "model")
    assert (tmp_path / "model" / "lists.png").stat().st_size > 5_000
    assert "How users look at lists" in (tmp_path / "model" / "report.html").read_text()
    assert json.loads((tmp_path / "model" / "report.json").read_text())["lists"]["rows"] == (
        [480] * 3
    )


def test_lists_of_several_lengths_are_allowed_and_said():
    table = generated(Positions((1.0, 1.0, 1.0)), n_users=40)
    cut = table.filter((pl.col("page") % 2 == 0) | (pl.col("place") < 3))
    assert quickly(cut).report["lists"]["lengths"] == {2: 160, 3: 160}


def test_actions_shown_alone_are_lists_of_one():
    table = generated(Positions((1.0, 1.0, 1.0)), n_users=40)
    alone = pl.when(pl.col("page") % 2 == 0).then(None)
    mixed = table.with_columns(
        alone.otherwise(pl.col("page")).alias("page"),
        alone.otherwise(pl.col("place")).alias("place"),
    )
    assert quickly(mixed).report["lists"]["lengths"] == {1: 480, 3: 160}


def test_lists_of_too_few_users_are_not_replayed():
    table = generated(Cascade(), n_users=30, lists=1)
    found = quickly(table, click_model="cascade", assess=True, quick=True)
    assert "have rows for two lists" in found.report["judgement"]["sentence"]
    assert found.report["judgement"]["verdict"] == "cannot tell"


def test_the_usual_length_of_a_cascade_is_that_of_lists_without_a_click():
    found = quickly(generated(Cascade(), n_users=50))  # rows below a click are missing
    assert found.report["lists"]["length"] == LENGTH


def fixed_places(table):
    return table.with_columns(("a" + pl.col("place").cast(pl.String)).alias("action"))


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (lambda t: t.with_columns(reward=2.5 * pl.col("reward")), {"click_model": "positions"},
         "positions is for rewards of 0 and 1"),
        (fixed_places, {"click_model": "positions"}, "no action was shown 10 times both"),
        (lambda t: t.with_columns(place=1), {}, "has 3 rows at position 1"),
        (lambda t: t.with_columns(user=pl.col("place")), {}, "has rows of several users"),
        (lambda t: t.with_columns(reward=1.0), {"click_model": "cascade"},
         "the user stops at the first click, so a list has at most one; list '0' has 3"),
        (lambda t: t.filter(pl.col("place") != 2).with_columns(reward=pl.col("place") == 1),
         {"click_model": "cascade"},
         "position 2 of list '0' has none"),
        (lambda t: t.with_columns(place=pl.lit("top")), {}, "place counts positions from 1"),
        (lambda t: t, {"position": None}, "list and position are given together"),
        (lambda t: t, {"click_model": "dice"}, "click_model must be one of"),
        (lambda t: t, {"click_model": "positions", "kind": "linear"}, "kind linear is not for it"),
        (lambda t: t, {"engine": "spark", "list": None, "position": None, "click_model": "each"},
         "for logs of lists: name the columns"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(change, options, said):
    table = change(generated(Positions(LOOKED), n_users=40))
    with pytest.raises(LogError, match=said) as refused:
        quickly(table, **options)
    assert "\n" not in str(refused.value)


def test_few_rows_at_two_positions_do_not_identify_examination():
    table = fixed_places(generated(Positions(LOOKED), n_users=40))
    users, places = table["user"].to_numpy().copy(), table["place"].to_numpy() - 1
    for moved, fails in ((9, True), (10, False)):
        actions = places.copy()
        for place in (1, 2):
            actions[np.flatnonzero(places == place)[:moved]] = 0
        log = Log(users, actions, table["reward"].to_numpy().copy(),
                  tuple(map(str, range(40))), tuple("abc"),
                  lists=table["page"].to_numpy(), positions=places)  # fmt: skip
        assert (not_identified(log) is not None) == fails


def test_decisions_of_an_export_are_read_by_position():
    table = generated(Cascade(), n_users=30).rename({"page": "list_id", "place": "list_position"})
    export = table.with_columns(decision_id=pl.col("list_id").cast(pl.String)).sample(
        fraction=1.0, shuffle=True, seed=0
    )
    found = fit(export, assess=False, bootstrap=0, states=1)
    assert found.report["lists"]["lists"] == 240
    assert found.report["log"]["rewards"] == table["reward"].count()
