"""All engines learn the same model from the same log, to 1e-9, whatever the kind of model."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from latentbandits.learning import fit, reading
from latentbandits.learning.arms import learner as arms_learner
from latentbandits.learning.backends import opening, out_of_core
from latentbandits.learning.backends.backend import MemoryEngine
from latentbandits.learning.generate import generate_arms, generate_ratings
from latentbandits.learning.linear.alternating import (
    CompletionSettings,
    SweepPass,
    complete_fold,
    sum_pairs,
)
from latentbandits.learning.linear.completion import complete
from latentbandits.learning.logs.rows import read_log
from latentbandits.learning.logs.tables import LogError, TextFormat, read_file
from latentbandits.models.artefacts import load, save
from latentbandits.testing import check_learner

pytestmark = pytest.mark.usefixtures("small_buckets")

NAMED = {"user": "user", "action": "action", "reward": "reward"}


def arrays(model, folder):
    """Every array and number of a model, as its artefact holds them."""
    from safetensors.numpy import load_file

    save(model, folder)
    assert type(load(folder)) is type(model)
    return {
        f"{path.name} {name}": array
        for path in sorted(folder.rglob("*.safetensors"))
        for name, array in load_file(path).items()
    }


def same_model(one, other, tmp_path):
    ours, theirs = arrays(one, tmp_path / "model-1"), arrays(other, tmp_path / "model-2")
    assert ours
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-9, atol=1e-9, err_msg=name)


def table_of(log, seed=0):
    """The rows of a log as a table, shuffled but for each user's order."""
    frame = pl.DataFrame(
        {
            "user": np.array(log.user_ids)[log.users],
            "action": np.array(log.action_ids)[log.actions],
            "reward": log.rewards,
        }
    )
    place = np.arange(log.n_events) - log.starts[log.users]
    return frame[np.lexsort((np.random.default_rng(seed).random(len(frame)), place))]


def folder_of(frame, path, n_files=2):
    path.mkdir()
    size = -(-len(frame) // n_files)
    for i in range(n_files):
        frame.slice(i * size, size).write_parquet(path / f"{i}.parquet")
    return str(path)


def arms_log(rewards, n_users=1_100, seed=0):
    made = generate_arms(n_users=n_users, n_rounds=8, n_states=2, n_actions=4, seed=seed).log
    rng = np.random.default_rng(seed)
    changes = {
        "gaussian": lambda r: r,
        "bernoulli": lambda r: (rng.random(len(r)) < 1 / (1 + np.exp(-4 * (r - 0.5)))).astype(
            float
        ),
        "poisson": lambda r: rng.poisson(np.exp(r)).astype(float),
        "exponential": lambda r: rng.exponential(np.exp(r)),
        "categorical": lambda r: np.clip(np.round(2 * r), 0, 3),
    }
    return replace(made, rewards=changes[rewards](np.asarray(made.rewards)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "rewards", ["bernoulli", "gaussian", "poisson", "exponential", "categorical"]
)
def test_arms_are_the_same_out_of_core(tmp_path, rewards):
    source = folder_of(table_of(arms_log(rewards, n_users=700)), tmp_path / "log")
    options = {**NAMED, "rewards": rewards, "states": 2, "bootstrap": 2, "seed": 3}
    ours = fit(source, **options, engine="memory")
    theirs = fit(source, **options, engine="out_of_core", scratch=tmp_path)
    same_model(ours.model, theirs.model, tmp_path)
    assert ours.report["log"] == theirs.report["log"]
    judged = [one.report["judgement"]["recommended_policy"] for one in (ours, theirs)]
    assert judged[0] == judged[1]
    assert theirs.report["engine"]["name"] == "out_of_core"
    assert theirs.report["engine"]["disk"] > 0
    assert not list(tmp_path.glob("latentbandits-scratch-*"))


def test_states_that_move_are_the_same_out_of_core(tmp_path):
    source = folder_of(table_of(arms_log("gaussian", n_users=150)), tmp_path / "log")
    options = {**NAMED, "kind": "arms", "states": 2, "dynamics": "markov", "rewards": "gaussian",
               "assess": False}  # fmt: skip
    ours = fit(source, **options, engine="memory")
    theirs = fit(source, **options, engine="out_of_core", scratch=tmp_path)
    assert theirs.report["dynamics"]["chosen"] == "markov"
    same_model(ours.model, theirs.model, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"transform": "log1p", "states": 2},
        {"duplicates": "mean", "rewards": "gaussian", "states": 2},
        {"method": "spectral", "rewards": "gaussian", "states": 2},
        {"states": "auto"},
    ],
    ids=["transform", "merged", "spectral", "auto"],
)
def test_everything_that_fit_does_runs_out_of_core(tmp_path, options):
    log = arms_log("poisson" if "transform" in options else "gaussian")
    source = folder_of(table_of(log), tmp_path / "log")
    ours, theirs = (
        fit(source, **NAMED, **options, bootstrap=2, engine=engine)
        for engine in ("memory", "out_of_core")
    )
    same_model(ours.model, theirs.model, tmp_path)


def test_a_large_log_is_learned_out_of_core_by_itself(tmp_path, monkeypatch):
    source = folder_of(table_of(arms_log("bernoulli", n_users=200)), tmp_path / "log")
    assert opening.choose_engine(source, "auto", None) == "memory"
    monkeypatch.setattr(opening, "available_memory", lambda: 100_000)
    assert opening.choose_engine(source, "auto", None) == "out_of_core"
    assert opening.choose_engine(pl.read_parquet(source), "auto", None) == "memory"


def test_partitions_can_be_kept_for_the_next_fit(tmp_path, monkeypatch):
    source = folder_of(table_of(arms_log("bernoulli", n_users=300)), tmp_path / "log")
    options = {**NAMED, "kind": "arms", "states": 1, "bootstrap": 0, "assess": False,
               "partitions": tmp_path / "parts"}  # fmt: skip
    first = fit(source, **options)
    assert (tmp_path / "parts" / "manifest.json").exists()
    monkeypatch.setattr(opening, "write_partitions", None)  # they are not made again
    again = fit(source, **options)
    same_model(first.model, again.model, tmp_path)
    other = folder_of(table_of(arms_log("bernoulli", n_users=300, seed=1)), tmp_path / "other")
    with pytest.raises(LogError, match="partitions of another log"):
        fit(other, **options)
    with pytest.raises(LogError, match="are for the engine out_of_core"):
        fit(source, **options, engine="memory")


def test_partitions_that_lack_rows_are_refused(tmp_path):
    source = folder_of(table_of(arms_log("bernoulli", n_users=300)), tmp_path / "log")
    options = {**NAMED, "kind": "arms", "states": 1, "bootstrap": 0, "assess": False,
               "partitions": tmp_path / "parts"}  # fmt: skip
    with pytest.raises(LogError, match="no column planet"):
        fit(source, **options, user_features=["planet"])
    assert not (tmp_path / "parts").exists()
    fit(source, **options)
    damaged = tmp_path / "parts" / "rows-000.parquet"
    content = damaged.read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    with pytest.raises(LogError, match=r"rows-000\.parquet cannot be read as Parquet"):
        fit(source, **options)
    damaged.unlink()
    with pytest.raises(LogError, match=r"holds 0 of the 2,400 rows of this log: remove the folder"):
        fit(source, **options)


@pytest.mark.parametrize("engine", ["memory", "out_of_core"])
@pytest.mark.parametrize("column", ["user", "action", "reward"])
def test_files_of_a_folder_have_columns_of_one_type(tmp_path, engine, column):
    frame = table_of(arms_log("bernoulli", n_users=40)).with_columns(pl.col("user").cast(pl.Int64))
    frame = frame.with_columns(pl.col("action").cast(pl.Int64))
    (tmp_path / "log").mkdir()
    frame[:100].write_parquet(tmp_path / "log" / "1.parquet")
    other = frame[100:].with_columns(pl.col(column).cast(pl.String))
    other.write_parquet(tmp_path / "log" / "2.parquet")
    with pytest.raises(LogError, match=f"the files' columns differ in type: {column} is"):
        fit(str(tmp_path / "log"), **NAMED, engine=engine)


def test_a_damaged_file_of_a_large_log_is_named(tmp_path):
    source = folder_of(table_of(arms_log("gaussian", n_users=600)), tmp_path / "log")
    path = tmp_path / "log" / "1.parquet"
    content = bytearray(path.read_bytes())
    content[8 : len(content) // 2] = b"x" * (len(content) // 2 - 8)  # the footer is whole
    path.write_bytes(content)
    with pytest.raises(LogError, match=r"1\.parquet cannot be read as Parquet"):
        fit(source, **NAMED, engine="out_of_core", scratch=tmp_path)
    assert not list(tmp_path.glob("latentbandits-scratch-*"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "arms", "features": ["price"]}, "--kind arms is not for a model of --features"),
        ({"kind": "linear", "method": "spectral"}, "method spectral is for models of --kind arms"),
        ({"kind": "arms", "reg": 1.0}, "reg is for models of --kind linear"),
        ({"features": ["reward"]}, "--features reward: the reward is what is predicted"),
        ({"features": ["price*reward"]}, "--features reward: the reward is what is predicted"),
        ({"user_features": ["user"]}, "--user-features user: the id of a user says nothing"),
        ({"features": ["price"], "item_features": {"id": [1]}}, "not together with features"),
        ({"master": "local[2]"}, "master is for the engine spark, not for out_of_core"),
    ],
)
def test_options_are_refused_before_a_log_is_partitioned(tmp_path, monkeypatch, options, message):
    source = folder_of(side_log(40), tmp_path / "log")
    monkeypatch.setattr(opening, "write_partitions", None)
    with pytest.raises(LogError, match=re.escape(message)):
        fit(source, **options, engine="out_of_core", scratch=tmp_path)


def test_a_disk_that_fills_during_the_work_is_one_sentence(tmp_path, monkeypatch):
    def full(*_, **__):
        raise pl.exceptions.ComputeError("parquet: No space left on device (os error 28)")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    source = tmp_path / "log.csv"
    table_of(arms_log("gaussian", n_users=20)).write_csv(source)
    (tmp_path / "scratch").mkdir()
    with pytest.raises(
        LogError, match=r"cannot be written to .*: parquet: No space left on device"
    ):
        fit(str(source), engine="out_of_core", scratch=tmp_path / "scratch")
    assert not list((tmp_path / "scratch").iterdir())


def test_no_space_is_found_before_the_work(tmp_path, monkeypatch):
    source = folder_of(table_of(arms_log("bernoulli", n_users=300)), tmp_path / "log")
    monkeypatch.setattr(out_of_core, "CHUNK", None)  # reading rows would fail
    full = type("Usage", (), {"free": 10})
    monkeypatch.setattr(opening.shutil, "disk_usage", lambda folder: full)
    with pytest.raises(LogError, match=r"need about .* and .* has 0.0 MB free"):
        fit(source, **NAMED, engine="out_of_core", scratch=tmp_path)
    assert not list(tmp_path.glob("latentbandits-scratch-*"))


def ratings_log(link, n_users=700, n_actions=60, seed=0):
    """Ratings of a large catalogue, or clicks; a few pairs occur twice."""
    made = generate_ratings(
        n_users=n_users, n_actions=n_actions, n_states=2, density=0.3, seed=seed
    )
    rewards = made.rewards
    if link == "clicks":
        chance = 1 / (1 + np.exp(-(rewards - rewards.mean()) / rewards.std()))
        rewards = (np.random.default_rng(seed).random(len(rewards)) < chance).astype(float)
    frame = pl.DataFrame({"user": made.users, "action": made.actions, "reward": rewards})
    return pl.concat([frame, frame[:40]])


@pytest.mark.parametrize(
    ("link", "n_users"),
    [
        ("ratings", 300),
        pytest.param("clicks", 300, marks=pytest.mark.slow),
        pytest.param("ratings", 1_500, marks=pytest.mark.slow),
    ],
)
def test_completion_and_clusters_are_the_same_out_of_core(tmp_path, link, n_users):
    source = folder_of(ratings_log(link, n_users, 30), tmp_path / "log")
    options = {"kind": "linear", "rank": 2, "reg": 1.0, "states": 2, "bootstrap": 1}
    ours, theirs = (fit(source, **options, engine=name) for name in ("memory", "out_of_core"))
    same_model(ours.model, theirs.model, tmp_path)
    np.testing.assert_allclose(ours.catalogue.features, theirs.catalogue.features, atol=1e-9)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("weighting", ["plain", "counts"])
def test_a_completion_is_the_same_as_a_fold_and_in_one_piece(biases, weighting):
    """`complete` solves padded blocks of all users; the fold sums sparse products of buckets."""
    log = read_log(ratings_log("ratings", 1_100), "user", "action", "reward")
    pairs = sum_pairs(log)
    assert pairs.counts.max() == 2
    whole = complete(
        pairs.users, pairs.actions, pairs.means, weights=pairs.counts, scatter=pairs.scatter,
        rank=3, reg=0.7, weighting=weighting, biases=biases, sweeps=6, seed=5,
        n_users=log.n_users, n_actions=log.n_actions,
    )  # fmt: skip
    engine = MemoryEngine(log)
    assert engine.n_buckets == 2
    settings = CompletionSettings(3, 0.7, weighting, biases, "identity", 5, sweeps=6)
    folded = complete_fold(engine, settings)
    assert folded.noise == pytest.approx(whole.noise, rel=1e-9)
    np.testing.assert_allclose(folded.items.vectors, whole.actions, atol=1e-9)
    np.testing.assert_allclose(folded.features, whole.action_vectors, atol=1e-9)
    np.testing.assert_allclose(
        [sweep.objective for sweep in folded.history],
        [sweep.objective for sweep in whole.history],
        rtol=1e-10,
    )
    vectors = folded.vectors(log)
    np.testing.assert_allclose(vectors.vectors, whole.user_vectors, atol=1e-8)
    np.testing.assert_allclose(vectors.tastes, whole.tastes, atol=1e-8)


def test_a_pass_of_completion_conforms():
    log = read_log(ratings_log("ratings", 60, 12), "user", "action", "reward")
    for link in ("identity", "logit"):
        settings = CompletionSettings(2, 1.0, "plain", True, link, sweeps=2, replicate=2)
        shared = replace(log, rewards=(log.rewards > 0).astype(float)) if link == "logit" else log

        class Once(SweepPass):
            """A sweep that keeps its parameters."""

            def step(self, sums, parameters):
                return parameters

        start = complete_fold(MemoryEngine(shared), settings).start
        check_learner(Once(settings), start, shared)


def side_log(n_users=1_100, seed=0):
    """Rows with a price, a country, a list and a number that some rows lack; users with an age."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(n_users), 6)
    n = len(who)
    state = (rng.random(n_users) < 0.4).astype(int)[who]
    price, country = rng.uniform(0, 10, n), rng.choice(["AT", "DE", "FR"], n)
    age = np.where(state == 1, 30.0, 45.0) + 8 * rng.standard_normal(n_users)[who]
    reward = (price - 5) / 3 * np.where(state == 1, 1.0, -1.0) + 0.5 * rng.standard_normal(n)
    return pl.DataFrame(
        {
            "user": who,
            "action": rng.integers(5, size=n),
            "reward": reward,
            "time": rng.integers(1_000, size=n),
            "price": pl.Series(price).set(pl.Series(rng.random(n) < 0.02), None),
            "country": country,
            "age": pl.Series(age).set(pl.Series(rng.random(n) < 0.3), None),
            "phone": rng.random(n) < 0.5,
            "numbers": np.stack([np.ones(n), price - 5], axis=1).tolist(),
        },
        schema_overrides={"numbers": pl.List(pl.Float64)},
    )


SIDE = {
    "both": {"features": ["price*country", "phone"], "user_features": ["age", "phone"]},
    "attributes": {"user_features": ["age", "phone"], "rewards": "gaussian"},
    "lists": {"features": ["numbers"]},
    "clicks": {"features": ["price"], "rewards": "bernoulli"},
}


def side_frame(which, n_users):
    frame = side_log(n_users)
    clicks = (pl.col("reward") > 0).cast(pl.Float64).alias("reward")
    return frame.with_columns(clicks) if which == "clicks" else frame


@pytest.mark.parametrize(
    ("which", "n_users"),
    [
        pytest.param("both", 200, marks=pytest.mark.slow),
        pytest.param("attributes", 1_100, marks=pytest.mark.slow),
        pytest.param("lists", 1_100, marks=pytest.mark.slow),
        pytest.param("clicks", 1_100, marks=pytest.mark.slow),
    ],
)
def test_side_information_is_the_same_out_of_core(tmp_path, which, n_users):
    source = folder_of(side_frame(which, n_users), tmp_path / "log")
    options = {**NAMED, **SIDE[which], "order": "time", "states": 2, "bootstrap": 2}
    ours, theirs = (fit(source, **options, engine=name) for name in ("memory", "out_of_core"))
    same_model(ours.model, theirs.model, tmp_path)
    assert ours.report["user_features"] == theirs.report["user_features"]
    if "user_features" in options:
        assert ours.model.gate.encoder == theirs.model.gate.encoder
        assert ours.report["user_features"]["users_whose_attributes_change"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["arms", "features"])
def test_a_large_log_is_chosen_on_a_sample_and_learned_from_all(tmp_path, monkeypatch, kind):
    """With 10,000,000 rewards made 3,000: choices, bootstrap and replay see a sample of users."""
    monkeypatch.setattr(reading, "LARGE", 3_000)
    monkeypatch.setattr(reading, "CHOSEN_ON", 1_600)
    monkeypatch.setattr(arms_learner, "LARGE", 3_000)
    if kind == "arms":
        frame, options = table_of(arms_log("gaussian", n_users=600)), {"rewards": "gaussian"}
    else:
        frame, options = side_log(900), {"features": ["price"], "user_features": ["age"]}
    source = folder_of(frame, tmp_path / "log")
    options |= {"states": 2, "bootstrap": 2}
    ours, theirs = (fit(source, **options, engine=name) for name in ("memory", "out_of_core"))
    same_model(ours.model, theirs.model, tmp_path)
    seen = ours.report["engine"]["users_chosen_on"]
    assert 150 < seen < 350
    assert ours.report["log"]["users"] == frame["user"].n_unique()
    assert ours.report["judgement"]["recommended_policy"]
    # The model is that of all users, not of the sample: its counts are those of the whole log.
    whole = fit(source, **options | {"bootstrap": 0}, engine="memory")
    np.testing.assert_allclose(ours.model.state_prior, whole.model.state_prior, atol=1e-9)


def test_further_columns_of_files_must_be_of_one_type(tmp_path):
    frame = side_log(40)
    (tmp_path / "log").mkdir()
    frame[:100].write_parquet(tmp_path / "log" / "1.parquet")
    other = frame[100:].with_columns(pl.lit("dear").alias("price"))
    other.write_parquet(tmp_path / "log" / "2.parquet")
    with pytest.raises(LogError, match=r"differ in type: price is String in .*2\.parquet"):
        fit(str(tmp_path / "log"), features=["price"], engine="out_of_core")
    with pytest.raises(LogError, match="no column planet"):
        fit(str(tmp_path / "log"), features=["planet"], engine="out_of_core")


@pytest.mark.slow
def test_clicks_are_completed_to_the_same_minimum_as_in_one_piece():
    log = read_log(ratings_log("clicks", 400, 25), "user", "action", "reward")
    pairs = sum_pairs(log)
    whole = complete(
        pairs.users, pairs.actions, pairs.means, weights=pairs.counts, rank=2, reg=2.0,
        link="logit", sweeps=300, n_users=log.n_users, n_actions=log.n_actions,
    )  # fmt: skip
    settings = CompletionSettings(2, 2.0, link="logit", sweeps=300)
    folded = complete_fold(MemoryEngine(log), settings)
    objectives = [sweep.objective for sweep in folded.history]
    assert (np.diff(objectives) <= 1e-6 * objectives[0]).all()
    assert objectives[-1] == pytest.approx(whole.history[-1].objective, rel=1e-4)


def movielens(kind, folder):
    """Write the hundred films with most ratings (arms) or all films; return source and options."""
    path = Path(__file__).parents[3] / "shared" / "data" / "ml-1m" / "ratings.dat"
    if not path.exists():
        pytest.skip("NO MOVIELENS 1M beside the project: these data were NOT compared")
    frame = read_file(path, (), TextFormat(columns=("user", "action", "reward", "time")))
    if kind == "arms":
        most = frame["action"].value_counts(sort=True)["action"][:100]
        frame = frame.filter(pl.col("action").is_in(most.implode()))
        options = {"kind": "arms", "rewards": "gaussian", "states": 3, "bootstrap": 2}
    else:
        options = {"kind": "linear", "rank": 5, "reg": 10.0, "states": 2, "bootstrap": 1}
    source = folder_of(frame.with_columns(pl.col("reward").cast(pl.Float64)), folder)
    return source, {**NAMED, **options, "order": "time"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["arms", "linear"])
def test_movielens_is_learned_alike_in_memory_and_out_of_core(tmp_path, kind):
    source, options = movielens(kind, tmp_path / "log")
    ours, theirs = (fit(source, **options, engine=name) for name in ("memory", "out_of_core"))
    same_model(ours.model, theirs.model, tmp_path)
