"""The benchmark on small generated problems: its protocol, and contestants of other people."""

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from evidence.__main__ import main
from evidence.bench import contestants, submission
from evidence.bench.players import Neighbours, SharedMean
from evidence.bench.problem import Problem, Sizes, drawn, split_users, table_log
from evidence.bench.problems import PROBLEMS
from evidence.bench.problems.tables import ML_LATEST
from evidence.bench.protocol import Task, run
from evidence.bench.training import FACTORS, Training
from tools import bench_pages
from tools.figures import kept

from latentbandits import UCB1
from latentbandits.learning import Log
from latentbandits.learning.assess.replay import ScorePlayer, replay
from latentbandits.learning.generate import generate_arms, generate_ratings

RESULTS = bench_pages.DOCS / "figures" / "results"
DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
HORIZON = 12
LIKED, OTHER, MIDDLE = [0.6, 0.5, 0.5, 0.5], [0.05] * 4, [0.25]
RATES = np.array([LIKED + OTHER + MIDDLE, OTHER + LIKED + MIDDLE])


@pytest.fixture(scope="module", autouse=True)
def quick_verdicts():
    """Compare policies with all users here, as the processes that the benchmark starts do."""


def draw(n_users, rng):
    return RATES[(rng.random(n_users) < 0.4).astype(int)]


SMALL = Problem(
    "small", "Two kinds.", "click", HORIZON,
    lambda folder, seed, sizes: drawn(draw, 20, HORIZON, folder, seed, Sizes(200, 300)),
    forms={"all": None}, replacement=True,
)  # fmt: skip


class Mine(UCB1):
    """A policy of somebody else: UCB1 by another name."""


def learn_averages(training):
    """A learner of somebody else, which returns a player."""
    return ScorePlayer(training.averages)


def learn_model(training):
    """A learner of somebody else, which returns a model."""
    return training.fitted.model


class Disobedient(Mine):
    """A policy that ignores which actions are eligible."""

    def decide(self, belief, context, rng, *, eligible=None, propensity=True):
        return super().decide(belief, context, rng, propensity=propensity)


class OutOfRange(ScorePlayer):
    """A player that picks a column that is not there."""

    def choose(self, actions, offered):
        return np.full(len(actions), actions.shape[1])


def learn_nothing(training):
    return None


def learn_to_miss(training):
    return OutOfRange(training.averages)


OTHERS = tuple(f"{__name__}:{name}" for name in ("Mine", "learn_averages", "learn_model"))


@pytest.fixture(scope="module")
def results():
    policies = ("auto", "popularity", "uniform", "kNN", *contestants.OVER_ONE, *OTHERS)
    return run(Task(SMALL, policies, Path(), short=True))


def gain(results, policy):
    row = next(row for row in results["rows"] if row["policy"] == policy)
    return row["all_gain"], row["all_gain_stderr"]


def test_contestants_of_others_play_without_a_change_here(results):
    assert not results["absent"]
    assert gain(results, OTHERS[1]) == (0.0, 0.0)  # popularity under another name
    assert gain(results, OTHERS[2]) == gain(results, "states/mmGreedy")
    assert (
        gain(results, OTHERS[0])[0] > gain(results, "uniform")[0] + 0.02
    )  # it learns what a user likes, from scratch


def test_states_pay_where_users_come_in_kinds(results):
    mean, stderr = gain(results, "states/mmGreedy")
    assert mean > 3 * stderr
    assert results["states"]["nats_per_user"] > 5 * results["states"]["nats_stderr"]
    assert results["states"]["all_gain"] > 2 * results["states"]["all_gain_stderr"]


def test_the_same_seed_gives_the_same_numbers_whoever_else_plays(results):
    again = run(Task(SMALL, ("uniform", "popularity", "kNN"), Path(), short=True))
    for policy in ("kNN", "uniform"):
        assert gain(again, policy) == gain(results, policy)


def test_the_class_of_the_how_to_plays_as_it_is_written_there(tmp_path, monkeypatch):
    page = bench_pages.DOCS / "how-to" / "run-the-benchmark.md"
    code = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    (tmp_path / "mypkg.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    found = run(Task(SMALL, ("uniform", "popularity", "mypkg:Mine"), Path(), short=True))
    assert not found["absent"]
    assert gain(found, "mypkg:Mine")[0] > gain(found, "uniform")[0]


def test_a_round_offers_the_rows_of_the_next_menu():
    """A player that always picks one action earns that action's rewards, in their order."""
    rewards = np.arange(2 * 4 * 3, dtype=np.float64).reshape(2, 4, 3)
    log = table_log(rewards, ("a", "b", "c"))
    chosen = ScorePlayer(np.array([0.0, 0.0, 1.0]))
    played = replay({"c": chosen}, log, menus=True)
    assert played.rewards["c"].tolist() == rewards[:, :, 2].tolist()
    with pytest.raises(ValueError, match="menus"):
        replay({"c": chosen}, generate_arms(20, 9).log, menus=True)


def test_users_are_split_by_their_ids_alone():
    log = generate_arms(n_users=60, n_rounds=9).log
    order = np.random.default_rng(0).permutation(60)
    able = np.ones(60, np.bool_)
    one, other = (split_users(part, able, 3, Sizes(20, 10)) for part in (log, log.of_users(order)))
    assert set(one.test.user_ids) == set(other.test.user_ids)
    assert set(one.train.user_ids) == set(other.train.user_ids)
    assert not set(one.train.user_ids) & set(one.test.user_ids)


def test_a_source_is_read_from_its_folder_or_its_archive(tmp_path):
    table = "userId,movieId,rating,timestamp\n1,7,4.0,5\n1,8,2.5,3\n2,7,3.0,9\n"
    (tmp_path / "ml-latest-small").mkdir()
    (tmp_path / "ml-latest-small" / "ratings.csv").write_text(table)
    in_folder = ML_LATEST.read(tmp_path)
    zipped = tmp_path / "official"
    zipped.mkdir()
    with zipfile.ZipFile(zipped / "ml-latest-small.zip", "w") as archive:
        archive.writestr("ml-latest-small/ratings.csv", table)
    in_archive = ML_LATEST.read(zipped)
    assert in_folder.rewards.tolist() == in_archive.rewards.tolist() == [2.5, 4.0, 3.0]


@pytest.fixture(scope="module")
def ratings():
    made = generate_ratings(n_users=200, n_actions=40, n_states=3, density=0.5, seed=5)
    order = np.argsort(made.users, kind="stable")
    ids = [tuple(str(i) for i in range(n)) for n in (len(made.state), len(made.action_vectors))]
    log = Log(made.users[order], made.actions[order], made.rewards[order], *ids)
    return split_users(log, np.diff(log.starts) > 0, 0, Sizes(100, 80))


def test_neighbours_and_a_shared_mean_learn_from_other_users(ratings):
    """Both predict what a user likes after a few rewards; popularity cannot."""
    training = Training(ratings.train, horizon=8, seed=0)
    players = {
        "popularity": ScorePlayer(training.averages),
        "kNN": Neighbours(ratings.train, training.averages),
        "HierTS": SharedMean(ratings.train, training.model(FACTORS)),
        "uniform": ScorePlayer(np.zeros(training.n_actions)),
    }
    played = replay(players, ratings.test, offered=30, most_rounds=8)
    lead = played.difference("kNN", "popularity", 8)
    assert lead.mean > 2 * lead.stderr
    lead = played.difference("HierTS", "uniform", 8)
    assert lead.mean > 3 * lead.stderr


def test_the_shared_mean_is_that_of_a_population_that_saw_all_rewards(ratings):
    """Messages of single users add up to the belief of one population, fed visit by visit."""
    from latentbandits.models.visit import Visit
    from latentbandits.policies.decision import Decision
    from latentbandits.policies.shared.hierarchical import HierTS

    few = ratings.train.of_users(np.arange(4))
    training = Training(ratings.train, horizon=8, seed=0)
    player = SharedMean(few, training.model(FACTORS))
    one = player._policy
    policy = HierTS(4, one.n_features, one.noise, one.prior_spread, one.hyper_spread)
    belief = policy.init()
    for user, action, reward in zip(few.users, few.actions, few.rewards, strict=True):
        visit = Visit(np.array([user]), player._features[None, None, action])
        centred = [reward - few.rewards.mean()]
        belief = policy.update(belief, visit, Decision.logged([0]), centred)
    np.testing.assert_allclose(player._trained.precision, belief.precision, rtol=1e-8)
    np.testing.assert_allclose(
        player._trained.information, belief.information, rtol=1e-6, atol=1e-8
    )


def test_a_contestant_that_cannot_play_is_named_with_the_reason():
    problem = Problem("small", "", "", HORIZON, SMALL.load, forms={"all": None}, replacement=True)
    found = run(Task(problem, ("popularity", "factors/UCB1"), Path(), short=True))
    assert list(found["absent"]) == ["factors/UCB1"]


def test_a_warning_names_a_learner_that_returns_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(PROBLEMS, "small", SMALL)
    text = f"{__name__}:learn_nothing"
    words = ["bench", "--problems", "small", "--policies", "popularity", text, "--short"]
    assert main([*words, "--jobs", "1", "--out", str(tmp_path)]) == 0
    assert f"warning: {text}: it returned None: return a player" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"), [("Disobedient", "not eligible"), ("learn_to_miss", "was not offered")]
)
def test_a_choice_that_was_not_offered_is_refused(name, said):
    def load(folder, seed, sizes):
        return split_users(generate_arms(n_users=60, n_rounds=9).log, np.ones(60, bool), seed,
                           Sizes(30, 30))  # fmt: skip

    problem = Problem("once", "Each row once.", "click", 3, load, forms={"4": 4})
    with pytest.raises((ValueError, RuntimeError), match=said):
        run(Task(problem, ("popularity", f"{__name__}:{name}"), Path(), short=True))


@pytest.mark.parametrize(
    "text", ["mmTSS", "twostate/mmTS", "no.such.module:Mine", f"{__name__}:Nobody"]
)
def test_an_unknown_contestant_is_refused_before_any_work(text):
    with pytest.raises(ValueError, match=r"unknown|import"):
        contestants.check(text)


def test_every_default_contestant_has_a_text_that_is_known():
    for text in contestants.DEFAULTS:
        contestants.check(text)


def test_every_problem_says_what_it_is():
    for name, problem in PROBLEMS.items():
        assert name == problem.name
        assert problem.about.endswith(".")
        assert problem.forms
        assert problem.horizon >= 3
        assert pickle.loads(pickle.dumps(problem)).name == name  # worker processes receive it


def document():
    """The content of results.json for one problem of the registry, at full length."""
    numbers = {f"{key}_{what}": 0.5 if what == "reward" else 0.0
               for key in ("first", "all") for what in ("reward", "gain")}  # fmt: skip
    numbers |= {f"{name}_stderr": 0.1 for name in tuple(numbers)}
    row = {"setting": "sushi", "form": "all", "first_rounds": 3, "all_rounds": 3} | numbers
    rows = [row | {"policy": name, "microseconds": 1.0} for name in ("popularity", "mypkg:Mine")]
    settings = {"seed": 0, "short": False, "results": []}
    return {"experiment": "bench", "settings": settings, "policies": rows}


def test_a_valid_submission_has_no_errors():
    assert submission.errors(document()) == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("setting", "sushis", "no problem"),
        ("form", "50", "no form"),
        ("all_rounds", 30, "all_rounds must be 3"),
        ("all_gain", None, "finite number"),
        ("all_gain", float("nan"), "finite number"),
        ("first_reward_stderr", -1.0, "not be negative"),
        ("all_gain", 0.3, "the rewards differ by 0"),
        ("policy", "popularity", "twice"),
        ("policy", "", "contestant's text"),
    ],
)
def test_a_submission_with_an_error_is_refused(name, value, said):
    content = document()
    content["policies"][1][name] = value
    assert any(said in error for error in submission.errors(content))


@pytest.mark.parametrize(("text", "said"), [("[1]", "object"), ("{", "cannot be read")])
def test_a_file_that_is_no_submission_is_refused_in_a_sentence(
    text, said, tmp_path, monkeypatch, capsys
):
    file = tmp_path / "results.json"
    file.write_text(text)
    monkeypatch.setattr("sys.argv", ["submission", str(file)])
    assert submission.main() == 2
    assert said in capsys.readouterr().out


def test_the_kept_results_and_all_submissions_are_valid():
    files = [RESULTS / "bench.json", *submission.FOLDER.glob("*.json")]
    for file in files:
        content = json.loads(file.read_text())
        content = kept.read(file) if "columns" in content else content
        assert submission.errors(content) == [], file


def test_the_pages_have_the_tables_of_the_kept_results():
    parts = bench_pages.tables(kept.read(RESULTS / "bench.json"))
    for page in bench_pages.PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.count("<!-- bench: ") >= 1
        assert bench_pages.filled(text, parts) == text, "run python -m tools.bench_pages"


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not beside the project")
def test_the_short_form_plays_all_problems_on_any_number_of_processes(tmp_path):
    """All problems and contestants; then some in two processes, with the same numbers."""
    one, two = tmp_path / "one", tmp_path / "two"
    options = ["--data", str(DATA), "--short", "--seed", "3"]
    assert main(["bench", *options, "--jobs", "1", "--out", str(one)]) == 0
    some = ["--problems", "sushi", "generated-kinds"]
    assert main(["bench", *options, *some, "--jobs", "2", "--out", str(two)]) == 0
    first, second = (json.loads((path / "results.json").read_text()) for path in (one, two))
    assert submission.errors(first) == []
    assert not (one / "sushi.json").exists()  # kept only while a run is under way
    assert {row["setting"] for row in first["policies"]} == set(PROBLEMS)
    rows = {(r["setting"], r["form"], r["policy"]): r for r in first["policies"]}
    for row in second["policies"]:
        mine = rows[row["setting"], row["form"], row["policy"]]
        assert {k: v for k, v in row.items() if k != "microseconds"} == {
            k: v for k, v in mine.items() if k != "microseconds"
        }
