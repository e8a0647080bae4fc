"""The verdict on a model: which policy is recommended, and what is said about it."""

from dataclasses import replace

import numpy as np
import pytest

from latentbandits import GaussianArms, LinearGaussian
from latentbandits.learning import fit, fitting, save_fit
from latentbandits.learning.assess import comparisons, tournament
from latentbandits.learning.assess.replay import Replay
from latentbandits.learning.assess.report import doubts
from latentbandits.learning.assess.tournament import (
    judge_policies,
    judge_saved,
    paired_regrets,
    unjudged,
    value_of_state,
)
from latentbandits.learning.assess.verdict import Judgement, Lead, Simulated
from latentbandits.learning.backends.backend import summary_of
from latentbandits.learning.generate import generate_arms
from latentbandits.learning.learners import Candidate, Learned, align, judge
from latentbandits.learning.linear.learner import LinearLearner
from latentbandits.learning.logs.rows import read_log
from latentbandits.models.artefacts import model_files
from latentbandits.policies.registry import parse
from latentbandits.report.report import Estimate
from latentbandits.simulation.tune import REPLAYED, TunedPolicy
from tests.unit.test_selection import ratings_log


def replayed(n_users=200, rounds=20, seed=0, **leads):
    """Rewards of popularity, and of policies that earn so much more (per round; or per window)."""
    rng = np.random.default_rng(seed)
    base = rng.normal(1.0, 0.5, (n_users, rounds))
    rewards = {"popularity": base}
    for name, lead in leads.items():
        first, later = lead if isinstance(lead, tuple) else (lead, lead)
        added = np.r_[np.full(10, first), np.full(rounds - 10, later)]
        rewards[name] = base + added + rng.normal(0, 0.3, base.shape)
    return Replay(np.full(n_users, rounds), rewards)


def judged(replay, lost=None, error=0.01, **regrets):
    """The judgement of policies with these regrets, known to `error`, under simulation."""
    names = tuple(name for name in replay.rewards if name != "popularity")
    result = {name: Estimate(regret, error) for name, regret in regrets.items()}
    least = min(regrets.values())
    behind = {name: Estimate(regret - least, error) for name, regret in regrets.items()}
    return Judgement(replay, names, Simulated(result, behind, lost or {}), 0.1)


def test_simulation_chooses_among_those_that_replay_does_not_veto():
    actual = judged(replayed(mTS=0.1, mmTS=0.101, mUCB=-0.2), mTS=1.0, mmTS=2.0, mUCB=0.1)
    assert set(actual.admitted) == {"mTS", "mmTS"}
    assert actual.recommended == "mTS"
    assert actual.verdict == "helps"
    assert actual.sentence.startswith("The model helps: mTS earns +0.1")


def test_a_policy_that_was_dropped_early_does_not_win_by_easy_users():
    won = TunedPolicy("mTS", Estimate(1.82, 0.06), Estimate(0.0, 0.0), users=480, stages=2)
    out = TunedPolicy("mUCB", Estimate(1.75, 0.11), Estimate(0.2, 0.05), users=160, stages=1)
    regrets = paired_regrets([won, out])
    assert regrets["mUCB"].mean == pytest.approx(2.02)
    replay = replayed(mTS=0.1, mUCB=0.1)
    right = judged(replay, **{name: actual.mean for name, actual in regrets.items()})
    assert right.recommended == "mTS"
    # The planted bug: each policy's regret over its own users.
    assert judged(replay, mTS=won.regret.mean, mUCB=out.regret.mean).recommended == "mUCB"


def test_of_policies_that_are_almost_alike_the_better_start_wins():
    replay = replayed(mTS=0.1, mUCB=0.1)
    lost = {"mTS": 0.04, "mUCB": -0.02}
    assert judged(replay, lost=lost, mTS=1.0, mUCB=1.05).recommended == "mUCB"
    assert judged(replay, lost=lost, mTS=1.0, mUCB=1.1).recommended == "mTS"
    alike = {"mTS": 0.004, "mUCB": -0.004}  # to a percent
    assert judged(replay, lost=alike, mTS=1.0, mUCB=1.05).recommended == "mTS"
    assert judged(replay, mTS=1.0, mUCB=1.05).recommended == "mTS"


def test_of_quantiles_that_are_almost_alike_the_one_that_explores_least_wins():
    greedy, bold = "mmGreedy", "mmBayesUCB(quantile=0.7)"
    replay = replayed(**{greedy: 0.1, bold: 0.1})
    assert judged(replay, **{greedy: 1.03, bold: 1.0}).recommended == greedy
    assert judged(replay, **{greedy: 1.05, bold: 1.0}).recommended == bold
    alone = judged(replayed(**{greedy: 0.1, "mIDS": 0.1}), **{greedy: 1.03, "mIDS": 1.0})
    assert alone.recommended == "mIDS"


def test_first_rounds_that_cost_too_much_are_avoided_where_there_is_a_choice():
    replay = replayed(mTS=0.1, mUCB=0.1)
    calm = judged(replay, lost={"mTS": 0.09, "mUCB": 0.01}, mTS=1.0, mUCB=2.0)
    assert calm.recommended == "mUCB"
    both = judged(replay, lost={"mTS": 0.09, "mUCB": 0.08}, mTS=1.0, mUCB=2.0)
    assert both.recommended == "mTS"


def test_harm_recommends_popularity():
    actual = judged(replayed(mmTS=-0.3, mUCB=-0.1), mmTS=2.0, mUCB=1.0)
    assert actual.recommended == "popularity"
    assert actual.verdict == "harms"
    assert actual.judged == "mUCB"
    assert "Use popularity" in actual.sentence


def lead_of(mean, width, n_users=500, tolerated=0.02):
    return Lead(Estimate(mean, width / 2), mean - width, mean + width, tolerated, n_users)


def test_a_verdict_has_four_values():
    assert lead_of(0.03, 0.02).verdict == "helps"
    assert lead_of(-0.03, 0.02).verdict == "harms"
    assert lead_of(0.0, 0.01).verdict == "no difference"
    assert lead_of(0.0, 0.03).verdict == "cannot tell"
    assert lead_of(0.03, 0.02, n_users=29).verdict == "cannot tell"
    assert lead_of(-0.03, 0.02, n_users=29).verdict == "cannot tell"


def test_a_tenth_of_the_lead_of_popularity_over_uniform_is_tolerated():
    replay = replayed(mTS=0.0, seed=3)
    replay.rewards["uniform"] = replay.rewards["popularity"] - 0.8
    actual = replace(judged(replay, mTS=1.0), candidates=("mTS",))
    assert actual.lead.tolerated == pytest.approx(0.08)
    assert actual.verdict == "no difference"
    assert actual.recommended == "popularity"  # it is as good, and simpler
    replay.rewards["uniform"] = replay.rewards["popularity"] - 0.001
    strict = Judgement(replay, ("mTS",), actual.simulated, 0.1, reward_sd=0.5)
    assert strict.lead.tolerated == pytest.approx(0.005)
    assert strict.verdict == "cannot tell"
    assert f"{strict.lead.users_needed:,} such users would be needed" in strict.sentence


@pytest.mark.parametrize(("shift", "recommended"), [(0.002, "mTS"), (-0.002, "popularity")])
@pytest.mark.parametrize(("deviation", "verdict"), [(0.1, "cannot tell"), (5.0, "no difference")])
def test_a_model_that_replay_puts_behind_is_not_recommended(shift, recommended, deviation, verdict):
    replay = replayed(mTS=0.0, seed=3)
    lead = replay.lead("mTS", "popularity").mean
    replay.rewards["mTS"] = replay.rewards["mTS"] + (shift - lead)
    simulated = judged(replay, mTS=1.0).simulated
    actual = Judgement(replay, ("mTS",), simulated, 0.1, reward_sd=deviation)
    assert actual.verdict == verdict
    assert actual.recommended == recommended


def test_users_needed_decide():
    lead = lead_of(-0.005, 0.06, n_users=100)
    more = lead.users_needed
    width = 0.06 * np.sqrt(100 / more)
    assert lead.verdict == "cannot tell"
    assert lead_of(-0.005, 0.999 * width, more).verdict == "no difference"
    assert lead_of(-0.005, 1.02 * width, more).verdict == "cannot tell"


def test_few_users_prove_nothing():
    actual = judged(replayed(mTS=0.3, n_users=12), mTS=1.0)
    assert actual.verdict == "cannot tell"
    assert "30 such users would be needed" in actual.sentence
    # A loss that two standard errors would have called harm.
    loss = judged(replayed(mTS=-0.3, n_users=12), mTS=1.0)
    assert loss.verdict == "cannot tell"
    assert loss.recommended == "popularity"


def test_a_model_that_predicts_badly_is_not_recommended():
    sure = judged(replayed(mTS=0.3), mTS=1.0)
    actual = replace(sure, doubts=("its intervals hold too little",))
    assert (sure.recommended, actual.recommended) == ("mTS", "popularity")
    assert actual.report()["why_popularity"] == "its intervals hold too little"
    assert actual.sentence.endswith("Use popularity: its intervals hold too little.")
    assert sure.report()["why_popularity"] is None


def test_a_gain_that_the_model_itself_does_not_expect_is_no_help():
    """Replay offers few actions: states can matter there and share the best action of all."""
    helps = judged(replayed(mTS=0.3), mTS=1.0)

    def expecting(judgement, mean):
        simulated = replace(judgement.simulated, gain=Estimate(mean, 0.01))
        return replace(judgement, simulated=simulated)

    clear, unclear = (expecting(helps, mean) for mean in (0.021, 0.019))
    assert (clear.verdict, clear.recommended) == ("helps", "mTS")
    assert (unclear.verdict, unclear.recommended) == ("no difference", "popularity")
    assert unclear.judged == "mTS"
    assert "no clear gain (+0.019 ±0.010)" in unclear.sentence
    assert unclear.report()["simulated_gain"] == {"mean": 0.019, "stderr": 0.01}
    harms = expecting(judged(replayed(mTS=-0.3), mTS=1.0), 0.0)
    assert harms.verdict == "harms"
    few = expecting(judged(replayed(mTS=0.3, n_users=12), mTS=1.0), 0.0)
    assert few.verdict == "cannot tell"


def test_states_that_share_the_best_action_are_no_help():
    """Of five actions the first pays most in both states; others are worth telling apart in replay.

    The planted bug: nobody asks what the model itself expects where all actions are on offer.
    """
    means = np.array([[0.9, 0.8, 0.2, 0.7, 0.1], [0.9, 0.1, 0.7, 0.2, 0.8]])
    rng = np.random.default_rng(0)
    users, state = np.repeat(np.arange(1000), 16), rng.integers(2, size=1000)
    actions = rng.integers(5, size=len(users))
    rewards = means[state[users], actions] + 0.3 * rng.standard_normal(len(users))
    log = read_log({"u": users, "a": actions, "r": rewards}, "u", "a", "r")
    kept, held_out = split(log)
    learned = Learned(GaussianArms(means, 0.3), None, summary_of(kept).action_counts)
    actual = judge_policies(learned, kept, held_out, policies=("mmGreedy", "mTS"))
    assert actual.lead.verdict == "helps"
    assert (actual.verdict, actual.recommended) == ("no difference", "popularity")
    forgotten = replace(actual, simulated=replace(actual.simulated, gain=None))
    assert (forgotten.verdict, forgotten.recommended) == ("helps", "mmGreedy")


def test_doubts_about_predictions(truth):
    kept, held_out = split(truth.log)
    summary = summary_of(kept)
    right = judge(learned_of(truth, truth.means), held_out)
    assert doubts(right, summary) == ()
    worse = replace(right, error=right.error + 3.0)
    assert "clearly worse (3.017) than the action's mean" in doubts(worse, summary)[0]
    narrow = replace(right, uniform=np.where(np.arange(len(right.uniform)) % 4, right.uniform, 1.0))
    assert "95% intervals hold only 7" in doubts(narrow, summary)[0]
    clicks = replace(kept, rewards=(kept.rewards > 0.5).astype(float))
    assert not any("intervals" in reason for reason in doubts(narrow, summary_of(clicks)))


def test_a_slow_start_is_avoided_where_there_is_a_choice():
    actual = judged(replayed(mTS=0.1, mUCB=(-0.1, 0.3)), mTS=2.0, mUCB=1.0)
    assert set(actual.admitted) == {"mTS", "mUCB"}
    assert actual.recommended == "mTS"
    alone = judged(replayed(mUCB=(-0.1, 0.3)), mUCB=2.0)
    assert alone.recommended == "mUCB"
    assert alone.verdict == "helps"


def test_the_verdict_agrees_with_the_table():
    for seed in range(20):
        actual = judged(replayed(mTS=0.02, mUCB=-0.01, n_users=60, seed=seed), mTS=1.0, mUCB=2.0)
        report = actual.report()
        row = next(
            r for r in report["replay"] if r["policy"] == actual.judged and r["rounds"] == 20
        )
        lead, error = row["over_popularity"], 2.0010 * row["over_popularity_stderr"]  # t, 59
        expected = "helps" if lead > error else "harms" if lead < -error else "cannot tell"
        assert report["verdict"] == expected


@pytest.fixture(scope="module")
def truth():
    return generate_arms(n_users=1000, n_rounds=60, n_states=3, n_actions=8, noise=0.3, seed=7)


def learned_of(truth, means):
    counts = np.bincount(truth.log.actions, minlength=truth.log.n_actions)
    return Learned(GaussianArms(means, 0.3, 0.05, truth.shares), None, counts)


def split(log):
    return log.of_users(np.arange(700)), log.of_users(np.arange(700, 1000))


def test_a_right_model_helps_and_a_wrong_one_harms(truth):
    kept, held_out = split(truth.log)
    right = judge_policies(learned_of(truth, truth.means), kept, held_out)
    assert right.verdict == "helps"
    parse(right.recommended)
    behind = right.simulated.behind[right.recommended]
    assert behind.mean <= 2 * behind.stderr
    assert right.simulated.lost[right.recommended] < 0.04
    assert {"uniform", "popularity", "TS"} <= set(right.replay.rewards)
    # The planted bug: a model that is sure that the worst action on average is the best.
    average = truth.shares @ truth.means
    sure = GaussianArms(-average[None], 0.3, 1e-3)
    wrong = judge_policies(replace(learned_of(truth, truth.means), model=sure), kept, held_out)
    assert wrong.verdict == "harms"
    assert wrong.recommended == "popularity"


def test_replay_plays_the_model_of_kept_users_and_simulation_the_written_one(truth):
    kept, held_out = split(truth.log)
    learned = learned_of(truth, truth.means)
    alone = judge_policies(learned, kept, held_out)
    larger = GaussianArms(10 * truth.means, 3.0, 0.5, truth.shares)  # all in tenths
    both = judge_policies(learned, kept, held_out, written=replace(learned, model=larger))
    for name, rewards in alone.replay.rewards.items():
        np.testing.assert_array_equal(both.replay.rewards[name], rewards)
    assert both.admitted == alone.admitted
    for name, regret in alone.simulated.regret.items():
        assert both.simulated.regret[name].mean == pytest.approx(10 * regret.mean, rel=1e-6)


def test_simulated_sessions_are_like_those_of_the_log(truth):
    kept, held_out = split(truth.log)
    learned = learned_of(truth, truth.means)
    again = judge_policies(learned, kept, held_out).simulated
    assert (again.rounds, again.replacement) == (60, True)
    pairs = np.unique(kept.users * 8 + kept.actions, return_index=True)[1]
    first = np.isin(np.arange(kept.n_events), pairs)  # nobody was shown an action twice
    once = judge_policies(learned, kept.of_events(first), held_out).simulated
    assert (once.rounds, once.replacement) == (2, False)
    assert max(regret.mean for regret in once.regret.values()) < again.regret["mmGreedy"].mean
    model = LinearGaussian(truth.means, 0.3, [0.01 * np.eye(8)] * 3, truth.shares)
    vectors = replace(learned, features=np.eye(8), model=model)
    linear = judge_policies(vectors, kept.of_events(first), held_out).simulated
    assert (linear.rounds, linear.replacement) == (2, False)


def test_too_few_rows_to_replay(truth):
    first = truth.log.of_events(np.diff(truth.log.users, prepend=-1) != 0)
    assert judge_policies(learned_of(truth, truth.means), first, first) is None
    one = truth.log.of_users(np.array([0]))
    assert judge_policies(learned_of(truth, truth.means), truth.log, one) is None
    found = unjudged(learned_of(truth, truth.means))
    assert set(found) == set(judged(replayed(mTS=0.1), mTS=1.0).report())
    assert found["recommended_policy"] in REPLAYED["arms"]


def test_value_of_state_by_hand(truth):
    model = GaussianArms([[1.0, 0.0], [0.0, 0.8]], 0.5, state_prior=[0.5, 0.5])
    counts = np.array([3, 4])
    # Knowing: (1 + 0.8) / 2. On average: max(0.5, 0.4).
    assert value_of_state(Learned(model, None, counts), truth.log) == pytest.approx(0.4)
    one = replace(Learned(model, None, counts), model=GaussianArms([[1.0, 0.0]], 0.5))
    assert value_of_state(one, truth.log) == pytest.approx(0.0)


def ruined(model):
    """A model that is sure that the worst action on average is the best."""
    average = model.state_prior @ model.means
    means = np.broadcast_to(-average, model.means.shape)
    return GaussianArms(means, model.noise, 1e-3, model.state_prior)


@pytest.fixture(scope="module")
def fitted(truth):
    kept, _ = split(truth.log)
    return fit(kept, kind="arms", rewards="gaussian", states=3, bootstrap=3)


def test_a_saved_folder_is_judged_by_its_arrays(truth, fitted, tmp_path):
    kept, held_out = split(truth.log)
    save_fit(fitted, tmp_path / "model")
    right = judge_saved(tmp_path / "model", kept, held_out)
    assert right.verdict == "helps"
    assert right.judged == fitted.report["judgement"]["recommended_policy"]
    save_fit(replace(fitted, model=ruined(fitted.model)), tmp_path / "model")
    wrong = judge_saved(tmp_path / "model", kept, held_out)
    assert wrong.verdict == "harms"
    assert wrong.recommended == "popularity"


def test_a_log_whose_actions_are_numbered_otherwise_is_judged_alike(truth, fitted, tmp_path):
    kept, held_out = split(truth.log)
    save_fit(fitted, tmp_path / "model")
    order = np.random.default_rng(0).permutation(truth.log.n_actions)
    ids = tuple(truth.log.action_ids[a] for a in order)
    place = np.argsort(order)
    logs = (replace(log, actions=place[log.actions], action_ids=ids) for log in (kept, held_out))
    other = judge_saved(tmp_path / "model", *logs)
    assert other.lead == judge_saved(tmp_path / "model", kept, held_out).lead


def test_fit_judges_what_is_written(truth, fitted, monkeypatch):
    """The planted bug is in the writing of models: only a model that is read again shows it."""
    kept, _ = split(truth.log)
    assert fitted.report["judgement"]["verdict"] == "helps"

    def write_badly(model, catalogue=None, notes=None):
        return model_files(ruined(model), catalogue, notes)

    monkeypatch.setattr(tournament, "model_files", write_badly)
    options = {"kind": "arms", "rewards": "gaussian", "states": 3}
    actual = fit(kept, **options, bootstrap=0)
    assert actual.report["judgement"]["verdict"] == "harms"
    quick = fit(kept, **options, quick=True).report["judgement"]  # without further users
    assert quick["lead"]["high"] < 0


def test_the_judged_model_is_widened_like_the_written_one(truth, monkeypatch):
    """The planted bug: a bootstrap that differs by so much that the model knows nothing."""
    kept, _ = split(truth.log)
    judged_models = []
    play = tournament.judge_policies

    def recorded(learned, *arguments, **options):
        judged_models.append(learned.model)
        return play(learned, *arguments, **options)

    monkeypatch.setattr(fitting, "judge_policies", recorded)
    narrow_written = fit(kept, kind="arms", rewards="gaussian", states=3, bootstrap=0).model
    narrow = judged_models[:]
    judged_models.clear()
    wide_written = fit(kept, kind="arms", rewards="gaussian", states=3, bootstrap=20).model
    # The candidate, and a model for each further part of the users.
    assert len(judged_models) == len(narrow) == 3
    for before, after in zip(narrow, judged_models, strict=True):
        np.testing.assert_allclose(after.means, before.means)
        growth = after.spread / before.spread
        assert (growth >= 1).all()
        assert growth.max() > 1.05
        np.testing.assert_allclose(
            growth.mean(), (wide_written.spread / narrow_written.spread).mean(), rtol=0.1
        )


def test_few_users_are_judged_once_more_by_models_that_have_not_seen_them(truth, monkeypatch):
    """The planted bug: a part that is judged by a model of all users."""
    kept, _ = split(truth.log)
    seen = []
    play = tournament.judge_policies

    def recorded(learned, kept_users, held_out, **options):
        seen.append(
            (set(kept_users.sample(kept_users.n_users, 0).user_ids), set(held_out.user_ids))
        )
        return play(learned, kept_users, held_out, **options)

    monkeypatch.setattr(fitting, "judge_policies", recorded)
    judged = fit(kept, kind="arms", rewards="gaussian", states=3, bootstrap=0).report["judgement"]
    users = [held_out for _, held_out in seen]
    assert all(not learned_from & held_out for learned_from, held_out in seen)
    assert len(set.union(*users)) == sum(map(len, users)) == judged["lead"]["users"]


def test_the_policy_is_chosen_by_other_users_than_the_verdict_is_about():
    chosen_by = replayed(mTS=0.3, mUCB=-0.3, seed=1)
    judged_by = replayed(mTS=-0.3, mUCB=0.3, seed=2)
    both = replace(judged(judged_by, mTS=1.0, mUCB=1.0), choosing=chosen_by)
    assert both.preferred == "mTS"
    assert both.verdict == "harms"
    # The planted bug: the same users choose and judge, and luck counts as gain.
    assert judged(judged_by, mTS=1.0, mUCB=1.0).verdict == "helps"


def test_the_users_that_fit_chooses_by_are_not_those_of_the_verdict(truth, monkeypatch):
    played = []

    def recorded(learned, kept, held_out, *, choosing=None, **options):
        played.append((kept, held_out, choosing))
        return judge_policies(learned, kept, held_out, choosing=choosing, **options)

    monkeypatch.setattr(fitting, "judge_policies", recorded)
    log = truth.log.of_users(np.arange(200))
    fit(log, kind="arms", rewards="gaussian", states=3, bootstrap=0)
    (_, judging, choosing), *further = played
    assert choosing.n_users > 20
    assert not np.intersect1d(judging.keys, choosing.keys).size
    for kept, users, none in further:  # they have no choice left to make
        assert none is None
        assert not np.intersect1d(kept.sample(kept.n_users, 0).keys, users.keys).size


def test_doubts_about_a_fit_reach_its_recommendation(truth, monkeypatch):
    monkeypatch.setattr(fitting.report, "doubts", lambda scores, log: ("planted",))
    log = truth.log.of_users(np.arange(200))
    judged = fit(log, kind="arms", rewards="gaussian", states=3, quick=True).report["judgement"]
    assert judged["recommended_policy"] == "popularity"
    assert judged["why_popularity"] == "planted"


def test_a_quick_fit_does_not_stay_with_what_everyone_likes_a_little(monkeypatch):
    """Action 0 pays more than the average of the others, of which every user likes one."""
    means = np.array([[0.6, 0.9, 0.1], [0.6, 0.1, 0.9]])
    rng = np.random.default_rng(0)
    users, state = np.repeat(np.arange(600), 20), rng.integers(2, size=600)
    actions = rng.integers(3, size=len(users))
    rewards = rng.binomial(1, means[state[users], actions])
    table = {"user": users, "action": actions, "reward": rewards}
    log = read_log(table, "user", "action", "reward")
    lead = fit(log, quick=True).report["judgement"]["lead"]
    # The planted bug: a policy that never explores is the only one.
    monkeypatch.setattr(fitting, "QUICK_POLICIES", ("mmGreedy",))
    assert fit(log, quick=True).report["judgement"]["lead"]["high"] < lead["low"]


def test_the_baselines_are_learned(truth, fitted):
    rows = {row["policy"]: row for row in fitted.report["judgement"]["replay"]}
    # Actions differ on average, which one state knows; users differ too.
    assert rows["one state"]["over_popularity"] > -2 * rows["one state"]["over_popularity_stderr"]
    lead, error = (rows["factorisation"][f"over_popularity{end}"] for end in ("", "_stderr"))
    assert lead > 3 * error


def users_of_one_kind(seed=1):
    """400 users whose tastes are spread around one mean: there are no kinds of users."""
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(400), 20)
    tastes = rng.normal(0, 0.3, 8) + 0.3 * rng.standard_normal((400, 8))
    actions = rng.integers(8, size=len(users))
    rewards = tastes[users, actions] + 0.5 * rng.standard_normal(len(users))
    return {"user": users, "action": actions, "reward": rewards}


def test_one_state_is_taken_where_it_does_as_well(monkeypatch):
    options = {"kind": "arms", "rewards": "gaussian", "bootstrap": 0, "assess": False}
    actual = fit(users_of_one_kind(), **options)
    assert actual.model.n_states == 1
    compared = actual.report["one_state"]
    assert compared["taken"]
    assert "One state does as well as 8" in compared["sentence"]
    assert [row["states"] for row in actual.report["selection"] if row["chosen"]] == [1]
    requested = fit(users_of_one_kind(), **options, states=3)
    assert requested.model.n_states == 3
    # The planted bug: one state is never taken.
    monkeypatch.setattr(comparisons.StateComparison, "takes_one", False)
    assert fit(users_of_one_kind(), **options).model.n_states == 8


def test_noise_and_the_variation_of_users_are_told_apart():
    """The planted bug: users' variation counts as noise too, and one state predicts worse."""
    options = {"kind": "arms", "rewards": "gaussian", "bootstrap": 0, "assess": False}
    model = fit(users_of_one_kind(), states=1, **options).model
    assert model.noise == pytest.approx(0.5, abs=0.02)
    assert model.spread.mean() == pytest.approx(0.3, abs=0.03)


def test_states_that_few_users_cannot_prove_are_proven_by_further_users(monkeypatch):
    log = generate_arms(n_users=500, n_rounds=12, n_states=2, n_actions=4, noise=0.7, seed=7).log
    learnt, learn = [], fitting._learn_without

    def recorded(parts, selection, seed):
        learnt.append(selection.chosen.n_states)
        return learn(parts, selection, seed)

    monkeypatch.setattr(fitting, "_learn_without", recorded)
    options = {"kind": "arms", "rewards": "gaussian", "bootstrap": 0}
    kept = fit(log, **options)
    assert kept.model.n_states == 2
    assert kept.report["one_state"]["states_predict_better"]
    assert kept.report["judgement"]["lead"]["users"] > 400  # further users are judged
    assert learnt == [1, 2]  # by the models of the comparison
    # The planted bug: only the users for choices count.
    monkeypatch.setattr(fitting, "further_parts", lambda users, options: ())
    assert fit(log, **options, assess=False).model.n_states == 1


def test_states_are_kept_where_they_predict_better():
    lead = {10: Estimate(0.0, 0.01), 20: Estimate(-0.009, 0.01)}
    nats = Estimate(0.1, 0.1)
    equal = comparisons.StateComparison(3, nats, False, lead, one=None, several=None)
    assert equal.takes_one
    known = equal._replace(preferred=True)
    assert not known.takes_one
    assert "predict rewards better" in known.sentence
    late = equal._replace(leads=lead | {20: Estimate(-0.011, 0.01)})
    assert not late.takes_one
    assert late.sentence == ""
    unplayed = equal._replace(leads={})  # nothing speaks for several states
    assert unplayed.takes_one
    assert "So the model has one state" in unplayed.sentence
    assert not known._replace(leads={}).takes_one


def test_the_judged_model_knows_nothing_of_held_out_users(monkeypatch):
    """The planted bug: vectors of actions that were learned from the judged users too."""
    log, _ = ratings_log(n_users=300, n_actions=70, n_states=2, density=0.4, separation=2.0, seed=2)
    judged_models = []

    def recorded(learned, kept, *arguments, written, **options):
        judged_models.append((learned, kept, written))

    monkeypatch.setattr(fitting, "judge_policies", recorded)
    fit(log, rank=3, states=2, reg=1.0, bootstrap=2)
    ((learned, kept, written),) = judged_models
    alone = LinearLearner(reg=1.0, rank=3, intercepts=True, weighting="plain")
    expected = alone.learn(kept, Candidate(2, 3), 0).rewards()
    order = align(learned.rewards(), expected)
    np.testing.assert_allclose(learned.rewards()[order], expected, atol=1e-6)
    assert np.abs(written.rewards()[order] - expected).max() > 0.05
