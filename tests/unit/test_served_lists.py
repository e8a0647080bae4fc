"""Lists in the engine: decided, rewarded, corrected, replayed, as the library does it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars
import pytest

from latentbandits import BernoulliArms, Markov
from latentbandits.loop.data import generation
from latentbandits.loop.kept_log import merged, reward_table
from latentbandits.models.artefacts import model_files
from latentbandits.models.clicks import as_click_model
from latentbandits.policies.lists import ListDecision, update_list
from latentbandits.serving.check import check
from latentbandits.serving.engine import batch
from latentbandits.serving.engine.model_rows import model_row, pack
from latentbandits.serving.engine.values import Decided, DecisionRequest, RewardReport
from latentbandits.serving.errors import Conflict, Invalid, NotFound
from latentbandits.serving.export import export, frame
from latentbandits.serving.log import Cursors, forgotten, reward_entries
from latentbandits.serving.stores import open_log, open_tables
from latentbandits.serving.stores.sqlite import SqliteStore
from tests.unit.engine_driver import ARMS, LINEAR, Driver, forget_beliefs

RATES = np.array([[0.6, 0.2, 0.1, 0.3, 0.4], [0.1, 0.5, 0.3, 0.2, 0.4], [0.2, 0.2, 0.6, 0.5, 0.1]])
CLICKS = BernoulliArms(20 * RATES, 20 * (1 - RATES), state_prior=[0.5, 0.3, 0.2])
MOVING = Markov(CLICKS, np.full((3, 3), 0.1) + 0.7 * np.eye(3))
POSITIONS = "positions(1.0, 0.6, 0.3)"


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give decisions fixed tokens, from which their random numbers derive."""
    rng = np.random.default_rng(8)
    monkeypatch.setattr(batch.secrets, "randbits", lambda bits: int(rng.integers(2**bits)))


def driver(model: Any = CLICKS, store: Any = None, **settings: Any) -> Driver:
    return Driver(model, store, **{"policy": "mmTS", "click_model": "cascade", **settings})


def report(decided: Decided, **fields: Any) -> RewardReport:
    return RewardReport(decided.decision_id, **fields)


def tell(service: Driver, decided: Decided, **fields: Any) -> str:
    status: str = service.reward(report(decided, **fields)).status
    return status


def answer(decided: Decided, rewards: list[float]) -> dict[str, Any]:
    """Return a report of these rewards by position, in the words of the list's click model."""
    if decided.click_model == "cascade":
        return {"clicked": decided.shown[rewards.index(1.0)] if 1.0 in rewards else None}
    return {"values": dict(zip(decided.shown, rewards, strict=True))}


def belief(service: Driver, session: str = "ann") -> Any:
    with service.engine.transaction():
        return service.engine.latest(session)[0].belief


def assert_same(one: Any, other: Any, tolerance: float = 1e-12) -> None:
    if isinstance(one, tuple):
        for a, b in zip(one, other, strict=True):
            assert_same(a, b, tolerance)
    elif one is not None:
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


def updated(service: Driver, lists: list[tuple[Decided, list[float | None]]]) -> Any:
    """Return the belief after these lists by `update_list`."""
    with service.engine.transaction():
        live = service.engine.latest("ann")[0]
    policy = live.policy
    after = policy.init(1)
    for decided, rewards in lists:
        shown = ListDecision.logged(
            [decided.indices],
            propensities=[decided.propensities],  # type: ignore[arg-type]
        )
        values = [[np.nan if value is None else value for value in rewards]]
        after = update_list(policy, after, None, shown, values, str(decided.click_model))
    return after


@pytest.mark.parametrize(
    ("model", "policy", "clicks"),
    [
        (CLICKS, "mmTS", "cascade"),
        (CLICKS, "mIDS", "cascade"),
        (CLICKS, "mTS", POSITIONS),
        (CLICKS, "mmTS", "each"),
        (MOVING, "mTS", "cascade"),
        (MOVING, "mTS", "each"),
        (CLICKS, "Exploring(policy=mmTS, e=0.3)", "cascade"),
    ],
)
def test_a_session_of_lists_believes_what_update_list_says(
    model: Any, policy: str, clicks: str
) -> None:
    """Live, after a restart of the engine, and while decisions are made again from the log."""
    service = driver(model, policy=policy, click_model=clicks, snapshot_rounds=0)
    rng = np.random.default_rng(1)
    lists: list[tuple[Decided, list[float | None]]] = []
    for _ in range(8):
        decided = service.ask(length=3)
        assert len(set(decided.shown)) == 3
        assert decided.click_model == clicks
        attracted = (rng.random(3) < RATES[0][decided.indices]).astype(float)
        seen = as_click_model(clicks).react(attracted[None], rng.random((1, 3)))[0]
        rewards = [None if np.isnan(value) else float(value) for value in seen]
        assert tell(service, decided, **answer(decided, rewards)) == "applied"
        lists.append((decided, rewards))
    expected = updated(service, lists)
    assert_same(belief(service), expected)
    assert service.session("ann").rewards == 8
    assert service.session("ann").mean_reward == np.mean([sum(filter(None, r)) for _, r in lists])
    forget_beliefs(service.engine)
    assert_same(belief(service), expected)
    for decided, _ in lists:
        again = service.recompute(decided.decision_id)
        assert again.shown == decided.shown
        np.testing.assert_allclose(again.propensities, decided.propensities, atol=1e-12)


def test_a_list_of_one_is_decided_as_one_action() -> None:
    service = driver()
    decided = service.ask(length=1)
    engine = service.engine
    with engine.transaction():
        row = engine.store.decision(int(decided.decision_id[:16], 16))
        live = engine.latest("ann")[0]
        request = DecisionRequest("ann")
        single_row = msgspec.structs.replace(row, click_model=None)
        single = engine.batch.recompute(live, request, single_row)
    assert decided.actions == [single.action]
    assert decided.propensities == [single.propensity]
    assert tell(service, decided, clicked=decided.action) == "applied"


def test_lists_that_are_decided_together_are_those_decided_alone() -> None:
    service = driver()
    names = [f"user {i}" for i in range(12)]
    with service.engine.transaction():
        pending = [service.engine.batch.ask(DecisionRequest(name, length=3)) for name in names]
        pending += [service.engine.batch.ask(DecisionRequest(f"{name}, one")) for name in names]
    for one in pending:
        again = service.recompute(one.answer.decision_id)
        assert msgspec.structs.replace(again, propensity=None) == msgspec.structs.replace(
            one.answer, propensity=None
        )


@pytest.mark.parametrize("explore", [0.0, 0.4])
def test_propensities_of_lists_are_their_frequencies(explore: float) -> None:
    """4,000 lists of 2 from one belief against the products of their mean propensities.

    Pearson's chi-square over the lists, at level .001; a propensity that forgets the exploration
    is refused.
    """
    service = driver(policy="mTS", explore=explore, click_model="cascade", propensity="policy")
    engine = service.engine
    with engine.transaction():
        pending = [engine.batch.ask(DecisionRequest(f"user {i}", length=2)) for i in range(4_000)]
    counts: dict[tuple[str, ...], int] = {}
    chances: dict[tuple[str, ...], float] = {}
    for one in pending:
        shown = tuple(one.answer.shown)
        counts[shown] = counts.get(shown, 0) + 1
        chances[shown] = float(np.prod(one.answer.propensities))
    if explore:
        lowest = explore / 5 * explore / 4
        assert min(chances.values()) >= lowest * (1 - 1e-12)
    expected = np.array([4_000 * chances[shown] for shown in counts])
    observed = np.array(list(counts.values()))
    assert _is_likely(observed, expected)
    wrong = expected * np.where(observed > np.median(observed), 0.8, 1.2)
    assert not _is_likely(observed, wrong)


def _is_likely(observed: Any, expected: Any) -> bool:
    from scipy.stats import chi2

    rest = 4_000 - expected.sum()
    statistic = ((observed - expected) ** 2 / expected).sum() + max(rest, 0.0)
    return bool(chi2.sf(statistic, len(observed)) > 0.001)


def test_eligible_and_excluded_actions() -> None:
    service = driver()
    for _ in range(5):
        some = service.ask(actions=["3", "0", "4"], length=3)
        assert sorted(some.shown) == ["0", "3", "4"]
        assert [["3", "0", "4"][i] for i in some.indices] == some.shown
        tell(service, some, clicked=some.shown[1])
        rest = service.ask(exclude=["1", "2"], length=3)
        assert sorted(rest.shown) == ["0", "3", "4"]
        tell(service, rest, clicked=None)
    expected = belief(service)
    forget_beliefs(service.engine)
    assert_same(belief(service), expected)


def test_the_same_request_gets_the_same_list() -> None:
    service = driver()
    first = service.ask(length=3, request_id="r")
    assert service.ask(length=3, request_id="r") == first
    with pytest.raises(Conflict, match="another request"):
        service.ask(length=2, request_id="r")
    with pytest.raises(Conflict, match="another request"):
        service.ask(request_id="r")
    assert service.session("ann").round == 1


def test_answers_may_come_in_parts_and_in_any_order() -> None:
    service = driver(click_model="each")
    decided, later = service.ask(length=3), service.ask(length=2)
    a, b, c = decided.shown
    assert tell(service, decided, values={b: 1.0}, event_id="first") == "applied"
    assert tell(service, later, values=dict.fromkeys(later.shown, 0.0)) == "applied"
    assert tell(service, decided, values={a: 0.0}, event_id="second") == "applied"
    assert tell(service, decided, values={b: 1.0}, event_id="first") == "duplicate"
    assert tell(service, decided, values={a: 0.0, b: 1.0}) == "duplicate"
    expected = updated(service, [(decided, [0.0, 1.0, None]), (later, [0.0, 0.0])])
    assert_same(belief(service), expected)
    with pytest.raises(Conflict, match=rf"'{b}' of the list .* was rewarded with 1.0, not 0.0"):
        tell(service, decided, values={b: 0.0, c: 1.0})
    assert_same(belief(service), expected)  # a refused report changes nothing
    assert tell(service, decided, values={c: 1.0}) == "applied"
    view = service.session("ann")
    assert (view.rewards, view.mean_reward) == (2, 1.0)
    assert_same(belief(service), updated(service, [(decided, [0, 1, 1]), (later, [0, 0])]))


def test_a_cascade_of_which_the_top_was_seen_goes_on_below() -> None:
    service = driver()
    decided = service.ask(length=3)
    a, b, c = decided.shown
    assert tell(service, decided, values={a: 0.0}) == "applied"
    assert_same(belief(service), updated(service, [(decided, [0, None, None])]))
    assert tell(service, decided, clicked=b) == "applied"
    assert_same(belief(service), updated(service, [(decided, [0, 1, None])]))
    for other in (a, c, None):
        with pytest.raises(Conflict, match="PUT corrects it"):
            tell(service, decided, clicked=other)


def test_corrections_take_the_place_of_what_was_observed() -> None:
    service = driver()
    decided, later = service.ask(length=3), service.ask(length=3)
    with pytest.raises(NotFound):
        service.correct(report(decided, clicked=None))
    tell(service, decided, clicked=decided.shown[0])
    tell(service, later, clicked=None)
    assert service.correct(report(decided, clicked=decided.shown[2])).status == "applied"
    expected = [(decided, [0.0, 0.0, 1.0]), (later, [0.0, 0.0, 0.0])]
    assert_same(belief(service), updated(service, expected))
    assert service.correct(report(decided, clicked=decided.shown[2])).status == "duplicate"
    assert service.correct(report(decided, clicked=decided.shown[0])).status == "applied"
    expected[0] = (decided, [1.0, None, None])
    assert_same(belief(service), updated(service, expected))
    with service.engine.transaction():
        lines = service.engine.store.audit(-1, 100)
    assert f"to a click on '{decided.shown[0]}'" in lines[-1].detail


def test_a_correction_of_values_keeps_the_others() -> None:
    service = driver(click_model="each")
    decided = service.ask(length=3)
    a, b, c = decided.shown
    tell(service, decided, values={a: 1.0, b: 0.0, c: 0.0})
    assert service.correct(report(decided, values={b: 1.0})).status == "applied"
    assert_same(belief(service), updated(service, [(decided, [1, 1, 0])]))


def test_a_late_reward_of_a_list_is_logged() -> None:
    service = driver(click_model="each", session_ttl=10)
    decided = service.ask(length=2)
    tell(service, decided, values={decided.shown[0]: 1.0})
    service.clock.now += 20_000
    assert tell(service, decided, values={decided.shown[1]: 1.0}) == "late"
    assert tell(service, decided, values={decided.shown[1]: 1.0}) == "duplicate"


def test_no_click_is_the_default_after_the_time_out() -> None:
    service = driver(reward_timeout=60, reward_default=0.0)
    silent, told, later = (service.ask(length=3) for _ in range(3))
    tell(service, told, clicked=told.shown[1])
    service.clock.now += 61_000
    assert service.sweep() == 2
    none = [0.0, 0.0, 0.0]
    rewards = [(told, [0, 1, None]), (silent, none), (later, none)]
    assert_same(belief(service), updated(service, rewards))
    # what is reported after all takes the place of the default
    assert tell(service, silent, clicked=silent.shown[0]) == "applied"
    rewards[1] = (silent, [1, None, None])
    assert_same(belief(service), updated(service, rewards))


def test_merged_sessions_keep_their_lists() -> None:
    service = driver()
    lists = []
    for name in ("ann", "phone", "ann"):
        decided = service.ask(name, length=3)
        tell(service, decided, clicked=decided.shown[-1])
        lists.append((decided, [0.0, 0.0, 1.0]))
    service.merge("ann", "phone")
    assert_same(belief(service), updated(service, lists))
    forget_beliefs(service.engine)
    assert_same(belief(service), updated(service, lists))


def test_lists_survive_a_change_of_models_and_actions_that_it_lacks() -> None:
    """The list's own click model goes with it; actions that the new model lacks teach nothing."""
    service = driver(swap="migrated")
    decided, waiting = service.ask(length=5), service.ask(length=3)
    tell(service, decided, clicked=decided.shown[-1])
    fewer = BernoulliArms(20 * RATES[:, :3], 20 * (1 - RATES[:, :3]))
    with service.engine.transaction():
        service.engine.activate(pack(fewer, "fewer"), click_model="each", force=True)
    assert service.ask(length=2).click_model == "each"
    assert tell(service, waiting, clicked=waiting.shown[0]) == "applied"
    with service.engine.transaction():
        live = service.engine.latest("ann")[0]
    assert live.served.is_grown  # it has rewards of actions that `fewer` lacks
    expected = live.policy.init(1)
    for one, rewards in ((decided, [0, 0, 0, 0, 1]), (waiting, [1, None, None])):
        places = [[int(name) for name in one.shown]]
        values = [[np.nan if value is None else value for value in rewards]]
        shown = ListDecision.logged(places)
        expected = update_list(live.policy, expected, None, shown, values, "cascade")
    assert_same(live.belief, expected)


def test_held_out_sessions_get_lists_too() -> None:
    service = driver(holdout_share=1.0)
    shown = {tuple(service.ask(f"user {i}", length=3).shown) for i in range(50)}
    assert len(shown) > 30  # of 60 lists that the uniform policy can show
    assert service.ask("user", length=3).propensities == pytest.approx([1 / 5, 1 / 4, 1 / 3])


def test_the_click_model_belongs_to_the_activation(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite")
    service = driver(store=store, click_model="auto")
    assert service.ask(length=2).click_model == "each"
    store.close()
    for text, expected in (("cascade", "cascade"), ("auto", "cascade"), ("each", "each")):
        store = SqliteStore(tmp_path / "store.sqlite")
        service = driver(store=store, click_model=text)
        assert service.ask(length=2).click_model == expected
        store.close()
    with pytest.raises(Invalid, match=r"'cascade' is for rewards of 0 and 1.*click model 'each'"):
        driver(ARMS)
    with pytest.raises(Invalid, match="unknown click model 'cascad': did you mean 'cascade'"):
        driver(click_model="cascad")
    with pytest.raises(Invalid, match=r"must begin with 1; got 0\.5"):
        driver(click_model="positions(0.5, 0.2)")
    with pytest.raises(Invalid, match="cannot learn where nobody knows which positions"):
        driver(click_model=POSITIONS)
    gaussian = Driver(ARMS, policy="mmTS")
    decided = gaussian.ask(length=2)
    values = dict(zip(decided.shown, (0.7, -0.2), strict=True))
    assert tell(gaussian, decided, values=values) == "applied"
    assert gaussian.session("ann").mean_reward == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("settings", "request_", "reward", "message"),
    [
        ({}, {"length": 0}, None, "length must be from 1 to 100; got 0: leave it out"),
        ({}, {"length": 101}, None, "length must be from 1 to 100; got 101"),
        ({}, {"length": 6}, None, "length 6 is more than the 5 actions that are eligible"),
        ({}, {"length": 3, "exclude": ["0", "1", "2"]}, None, "more than the 2 actions that are"),
        ({}, {"length": 3, "actions": ["0", "1"]}, None, "more than the 2 actions that are"),
        ({"click_model": POSITIONS, "policy": "mTS"}, {"length": 4}, None, "has 3 positions, so"),
        ({}, {"length": 3}, {"clicked": "tea"}, "'tea' is not in the list .*, which showed"),
        ({}, {"length": 3}, {"values": {"tea": 1.0}}, "'tea' is not in the list"),
        ({}, {"length": 3}, {"value": 1.0}, "is a list: say which action was `clicked`"),
        ({}, {"length": 3}, {}, "is a list: say which action was `clicked`"),
        ({}, {"length": 2}, {"values": {0: 1.0, 1: 1.0}}, "at most one; this one has .1.0, 1.0"),
        ({}, {"length": 2}, {"values": {0: 0.5}}, "position 0 has 0.5"),
        ({}, {"length": 2}, {"values": {1: 1.0}}, "position 0 has none"),
        ({"click_model": "each"}, {"length": 2}, {"clicked": 0}, "`clicked` is for the click mod"),
        (
            {"click_model": "each"},
            {"length": 2},
            {"values": {0: 3.0}},
            "value 3 is above reward_max",
        ),
        ({}, {}, {"clicked": 0}, "is the one action '.', not a list: send its reward as `value`"),
        ({}, {}, {"values": {0: 1.0}}, "is the one action"),
        ({}, {}, {}, "is the one action"),
    ],
)
def test_refusals_are_one_sentence_and_change_nothing(
    settings: dict[str, Any], request_: dict[str, Any], reward: dict[str, Any] | None, message: str
) -> None:
    """Positions stand for the actions there; other names are of actions that were not shown."""
    service = driver(**settings)
    service.ask("bob")
    if reward is None:
        with pytest.raises(Invalid, match=message):
            service.ask(**request_)
        return
    decided = service.ask(**request_)

    def named(key: Any) -> str:
        return decided.shown[key] if isinstance(key, int) else key

    fields = dict(reward)
    if "clicked" in fields:
        fields["clicked"] = named(fields["clicked"])
    if "values" in fields:
        fields["values"] = {named(key): value for key, value in fields["values"].items()}
    before = service.session("ann")
    with pytest.raises(Invalid, match=message):
        tell(service, decided, **fields)
    assert service.session("ann") == before


def test_a_store_of_schema_version_5_takes_lists(tmp_path: Path) -> None:
    """The file was written by commit 047eba3."""
    path = tmp_path / "store.sqlite"
    data = Path(__file__).parents[1] / "data" / "store-schema-5.sqlite.gz"
    path.write_bytes(gzip.decompress(data.read_bytes()))
    rates = RATES[:2, :4]
    service = driver(
        BernoulliArms(20 * rates, 20 * (1 - rates)), SqliteStore(path), session_ttl=1e9,
        retention=1e9,
    )  # fmt: skip
    believed = service.session("ann").state_probabilities
    assert believed == pytest.approx([0.9684070502161622, 0.031592949783837705], abs=1e-12)
    open_decision = Decided("000000000000001d22cfae9b669d2127", *[None] * 8)  # type: ignore[arg-type]
    assert tell(service, open_decision, value=1.0) == "applied"
    decided = service.ask(length=3)
    tell(service, decided, clicked=decided.shown[0])
    service.store.close()
    with open_tables(f"sqlite:{path}") as tables:
        assert check(tables).problems == []


def test_totals_of_lists_are_counted_and_can_be_computed_from_the_log(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    service = driver(store=SqliteStore(path), click_model="each")
    for length, rewards in ((3, [0.0, 1.0, 1.0]), (2, [1.0, 0.0])):
        decided = service.ask(length=length)
        tell(service, decided, **answer(decided, rewards))
    service.ask(length=1)
    service.ask()
    counts = service.engine.statistics.counts
    expected = {
        "lists": 3, "list_shown_1": 3, "list_shown_2": 2, "list_shown_3": 1, "list_clicked_1": 1,
        "list_clicked_2": 1, "list_clicked_3": 1,
    }  # fmt: skip
    assert {name: counts[name] for name in counts if name.startswith("list")} == expected
    service.correct(report(decided, values={decided.shown[0]: 0.0}))
    service.correct(report(decided, values={decided.shown[1]: 1.0}))
    assert counts["list_clicked_2"] == 2
    with service.engine.transaction():
        service.engine.store.put_note("statistics/0", b"damaged")
    service.store.close()
    again = driver(store=SqliteStore(path), click_model="each")
    again.session("ann")
    computed = again.engine.statistics.counts
    assert computed["lists"] == 3
    assert (computed.get("list_clicked_1", 0), computed["list_clicked_2"]) == (0, 2)
    again.store.close()


def read_back(path: Path, out: Path, since: str = "") -> tuple[polars.DataFrame, str]:
    done = export(open_log(f"sqlite:{path}"), str(out), since)
    return polars.read_parquet(out), done.next


def test_an_export_has_a_row_for_every_position(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    service = driver(store=SqliteStore(path))
    first, single = service.ask(length=3), service.ask("bob")
    tell(service, first, clicked=first.shown[1])
    tell(service, single, value=1.0)
    silent = service.ask(length=2)
    rows, cursor = read_back(path, tmp_path / "first.parquet")
    lists = rows.filter(polars.col("list_id").is_not_null()).sort("decision_id")
    assert lists["list_id"].to_list() == 3 * [first.decision_id] + 2 * [silent.decision_id]
    assert lists["list_position"].to_list() == [1, 2, 3, 1, 2]
    assert lists["action"].to_list() == first.shown + silent.shown
    assert lists["reward"].to_list() == [0.0, 1.0, None, None, None]
    assert lists["propensity"].to_list() == [*first.propensities, *silent.propensities]
    assert lists["eligible"][1].to_list() == [a for a in "01234" if a != first.shown[0]]
    assert lists["eligible"].list.len().to_list() == [5, 4, 3, 5, 4]
    assert rows["decision_id"].n_unique() == 6
    # a correction comes again, also where a position is no longer observed
    service.correct(report(first, clicked=first.shown[0]))
    again, _ = read_back(path, tmp_path / "second.parquet", cursor)
    assert again.sort("decision_id")["reward"].to_list() == [1.0, None, None]
    kept = merged(rows, again, reward_table([]))
    assert kept.filter(list_id=first.decision_id)["reward"].to_list() == [1.0, None, None]
    reader = open_log(f"sqlite:{path}")
    events = reader.read(0, 100)
    told = [e for one in events if one.reward for e in reward_entries(one, Cursors(b"abcd"))]
    by_http = merged(rows, frame([]), reward_table(told))
    assert by_http.filter(list_id=first.decision_id)["reward"].to_list() == [1.0, None, None]
    assert generation_numbers(kept) == {("ann", 1), ("bob", 1)}
    assert forgotten(reader, kept["decision_id"].to_list()) == []
    reader.close()
    service.delete("ann")
    gone = forgotten(open_log(f"sqlite:{path}"), kept["decision_id"].to_list())
    assert sorted(gone) == sorted(kept.filter(session="ann")["decision_id"])
    service.store.close()
    for kind in ("csv", "jsonl"):
        done = export(open_log(f"sqlite:{path}"), str(tmp_path / f"log.{kind}"))
        assert done.rows == 1


def generation_numbers(rows: polars.DataFrame) -> set[tuple[str, int]]:
    return set(rows.select("session", generation(rows).alias("number")).iter_rows())


def test_the_view_of_a_session_has_the_positions_of_its_lists() -> None:
    service = driver()
    decided = service.ask(length=3)
    service.ask()
    tell(service, decided, clicked=decided.shown[1])
    *shown, single = service.session("ann").history
    assert [(e.list_id, e.list_position, e.action, e.reward) for e in shown] == [
        (decided.decision_id, 1 + i, action, reward)
        for i, (action, reward) in enumerate(zip(decided.shown, (0.0, 1.0, None), strict=True))
    ]
    assert single.list_id is msgspec.UNSET
    assert [e.round for e in shown] == [1, 1, 1]


@pytest.mark.parametrize("policy", ["mmTS", "HierTS(n_users=4)"])
def test_lists_of_actions_whose_features_the_request_brings(policy: str) -> None:
    """Also for a population, whose users share a belief; a restart gives the same belief."""
    service = Driver(LINEAR, policy=policy)
    features = np.random.default_rng(3).normal(size=(5, 2)).tolist()
    for i in range(6):
        user = f"user {i % 3}" if policy != "mmTS" else None
        decided = service.ask(features=features, actions=list("abcde"), length=3, user=user)
        assert [list("abcde")[place] for place in decided.indices] == decided.shown
        tell(service, decided, values=dict(zip(decided.shown[:2], (0.5, -0.1), strict=True)))
        again = service.recompute(decided.decision_id)
        assert again.shown == decided.shown
    expected = belief(service)
    forget_beliefs(service.engine)
    assert_same(belief(service), expected, 0.0)


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        ({"name": "cascade"}, "cascade"),
        ({"name": "positions", "examination": [1, 0.6, 0.3]}, POSITIONS),
        ("cascade", "cascade"),
    ],
)
def test_the_click_model_is_what_the_fit_noted(noted: Any, expected: str) -> None:
    service = driver(policy="mTS", click_model="auto")
    row = model_row(model_files(CLICKS, None, {"click_model": noted}), "fitted")
    with service.engine.transaction():
        service.engine.activate(row)
    assert service.ask(length=2).click_model == expected
    wrong = model_row(model_files(CLICKS, None, {"click_model": {"name": "glance"}}), "wrong")
    with pytest.raises(Invalid, match="unknown click model 'glance'"), service.engine.transaction():
        service.engine.activate(wrong)
