"""User attributes: the gate P1(s | z), learned, saved, and used when a session begins."""

import numpy as np
import polars as pl
import pytest
from evidence.side import draw_users, generate_attributed, round_one
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import norm

from latentbandits import EXP4, Agent, GaussianArms, load, mmGreedy, mmTS, mTS, mUCB, save
from latentbandits.learning import fit, fitting
from latentbandits.learning.arms import mixture as mixtures
from latentbandits.learning.arms.mixture import Problem, start_at
from latentbandits.learning.attributes import gate as gates
from latentbandits.learning.attributes.encoding import Encoded
from latentbandits.learning.attributes.evidence import state_evidence
from latentbandits.learning.attributes.gate import (
    GatedParameters,
    GatedPass,
    GateParameters,
    PrepareGated,
)
from latentbandits.learning.backends.backend import add
from latentbandits.learning.learners import Learned
from latentbandits.learning.logs.rows import Log, LogColumns, read_columns
from latentbandits.learning.logs.tables import LogError
from latentbandits.learning.save import save_fit
from latentbandits.models.arms.gaussian import Gaussian
from latentbandits.models.attributes.columns import Category, Encoder, Number
from latentbandits.models.attributes.parts import Gate, log_softmax, with_parts
from latentbandits.policies import Decision
from latentbandits.policies.decision import ANYONE
from latentbandits.policies.protocol import begin
from latentbandits.policies.wrappers import Exploring

MODEL = GaussianArms([[0.9, 0.1], [0.2, 0.8]], noise=0.5, spread=0.1, state_prior=[0.3, 0.7])
ENCODER = Encoder((Category("country", ("AT", "DE"), (0.25, 0.75)), Number("age", 40.0, 10.0)))
GATE = Gate(
    ENCODER,
    np.array([[0.2, 1.0, 0.5], [0.0, -1.0, 0.0]]),
    ({"country": "AT", "age": 30.0}, {"country": "DE", "age": 50.0}),
)
GATED = with_parts(MODEL, gate=GATE)


def by_hand(country: float, age: float) -> np.ndarray:
    scores = np.array([0.2 + country + 0.5 * age, -country])
    return np.exp(scores) / np.exp(scores).sum()


def test_the_gate_is_a_softmax_of_centred_attributes():
    actual = np.exp(GATE.log_prior([{"country": "DE", "age": 50}], MODEL.log_state_prior))
    np.testing.assert_allclose(actual[0], by_hand(0.25, 1.0))


@pytest.mark.parametrize("user", [None, {}, {"country": "FR"}, {"country": None, "age": None}])
def test_a_user_of_whom_nothing_is_known_has_the_average_prior(user):
    np.testing.assert_allclose(np.exp(GATE.log_prior([user], MODEL.log_state_prior))[0], [0.3, 0.7])


def test_an_unknown_attribute_is_averaged_over_users_who_agree_with_the_known_ones():
    """Of two users, one agrees: it has weight 1, and one user's worth is spread over both."""
    actual = np.exp(GATE.log_prior([{"country": "DE"}], MODEL.log_state_prior))[0]
    expected = 0.25 * by_hand(0.25, -1.0) + 0.75 * by_hand(0.25, 1.0)
    np.testing.assert_allclose(actual, expected)


def test_a_user_who_agrees_with_nobody_has_the_average_over_all():
    actual = np.exp(GATE.log_prior([{"age": 400}], MODEL.log_state_prior))[0]
    np.testing.assert_allclose(actual, (by_hand(-0.75, 36.0) + by_hand(0.25, 36.0)) / 2)


def test_the_prior_with_one_attribute_unknown_is_that_given_the_known_one():
    """P(d | c), not P(d): c and d agree for nine users in ten, or d follows a number with noise.

    The exact prior is a sum over d. The average over all users, the planted bug, is .1 away.
    """
    rng = np.random.default_rng(0)
    c, age = rng.integers(2, size=400), rng.standard_normal(400)
    d = np.where(rng.random(400) < 0.9, c, 1 - c)
    e = (age + 0.5 * rng.standard_normal(400) > 0).astype(int)
    halves = ("0", "1"), (0.5, 0.5)
    encoder = Encoder(
        (
            Category("c", *halves),
            Category("d", *halves),
            Number("age", 0, 1),
            Category("e", *halves),
        )
    )
    sample = [
        {"c": str(one[0]), "d": str(one[1]), "age": float(one[2]), "e": str(one[3])}
        for one in zip(c, d, age, e, strict=True)
    ]
    for known, unknown, chance in (
        ({"c": "1"}, "d", 0.9),
        ({"age": 0.6}, "e", norm.cdf(0.6 / 0.5)),
    ):
        weights = np.zeros((2, 5))
        weights[0, 1 + encoder.labels.index(f"{unknown}=1")] = 3.0
        gate = Gate(encoder, weights, tuple(sample))
        actual = np.exp(gate.log_prior([known], np.log([[0.5, 0.5]])))[0, 0]
        low, high = 1 / (1 + np.exp(1.5)), 1 / (1 + np.exp(-1.5))
        assert actual == pytest.approx(low + chance * (high - low), abs=0.05)
        assert abs(actual - (low + high) / 2) > 0.1


@pytest.mark.parametrize("kind", [mTS, mmTS, mmGreedy, lambda m: Exploring(mmTS(m), 0.1)])
def test_the_posterior_is_prior_given_attributes_times_likelihood(kind):
    """Brute force: the same rewards under a model whose prior IS P1(s | z)."""
    user = {"country": "AT", "age": 60}
    policy = kind(GATED)
    direct = kind(GaussianArms(MODEL.means, 0.5, 0.1, by_hand(-0.75, 2.0)))
    belief, other = begin(policy, [user]), direct.init(1)
    for action, reward in ((0, 0.7), (1, 0.4), (0, 1.1)):
        decision = Decision(np.array([action]), np.array([0]), np.array([0.5]), "exact", ANYONE)
        belief = policy.update(belief, None, decision, [reward])
        other = direct.update(other, None, decision, [reward])
    np.testing.assert_allclose(
        belief.log_weights - logsumexp(belief.log_weights),
        other.log_weights - logsumexp(other.log_weights),
    )


def test_none_of_these_keeps_its_prior_probability():
    policy = mmTS(GATED, catch_all=True)
    plain = policy.state_probabilities(policy.init(1))[0]
    gated = policy.state_probabilities(begin(policy, [{"country": "DE", "age": 50}]))[0]
    assert gated[-1] == pytest.approx(plain[-1])
    np.testing.assert_allclose(gated[:2] / gated[:2].sum(), by_hand(0.25, 1.0))


@pytest.mark.parametrize("kind", [mUCB, EXP4])
def test_policies_without_a_posterior_over_states_begin_as_ever(kind):
    """EXP4 has weights of the states too, but they follow from losses: a prior would be lost."""
    policy = kind(GATED)
    for one, other in zip(begin(policy, [{"country": "DE"}]), policy.init(1), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_agent_takes_attributes_with_the_first_decision_and_refuses_others():
    agent = Agent(mmTS(GATED))
    agent.decide("ann", user_features={"country": "DE", "age": 50})
    np.testing.assert_allclose(agent.state_probabilities("ann"), by_hand(0.25, 1.0))
    agent.decide("ann", user_features={"country": "DE", "age": 50})
    with pytest.raises(ValueError, match="hold for the whole session"):
        agent.decide("ann", user_features={"country": "AT", "age": 50})
    agent.decide("bob")
    np.testing.assert_allclose(agent.state_probabilities("bob"), [0.3, 0.7])
    with pytest.raises(ValueError, match="hold for the whole session"):
        agent.decide("bob", user_features={"country": "AT"})
    with pytest.raises(ValueError, match="did you mean 'country'"):
        agent.decide("eve", user_features={"contry": "AT"})
    with pytest.raises(ValueError, match="age must be a finite number"):
        agent.decide("eve", user_features={"age": "old"})


def test_a_gate_is_saved_with_its_model(tmp_path):
    save(GATED, tmp_path / "model")
    gate = load(tmp_path / "model").gate
    user = [{"country": "DE", "age": 17}, {"age": 50}, None]
    np.testing.assert_array_equal(
        gate.log_prior(user, MODEL.log_state_prior), GATE.log_prior(user, MODEL.log_state_prior)
    )
    save(MODEL, tmp_path / "plain")
    assert getattr(load(tmp_path / "plain"), "gate", None) is None


def problem(n: int = 300, seed: int = 0) -> tuple[gates.GatePartition, np.random.Generator]:
    rng = np.random.default_rng(seed)
    z = np.concatenate([np.ones((n, 1)), rng.standard_normal((n, 2))], axis=1)
    scores = z @ rng.standard_normal((3, 3)) + rng.gumbel(size=(n, 3))
    state = np.eye(3)[scores.argmax(axis=1)]
    return gates.GatePartition(z, 2 * state + rng.standard_normal((n, 3))), rng


def test_the_evidence_never_falls_and_ends_at_the_optimum_of_a_general_optimiser():
    part, rng = problem()
    work = gates.GatePass(None)
    parameters = gates.GateParameters(rng.standard_normal((3, 3)))
    before = -np.inf
    for _ in range(3000):
        sums = work.summarise(part, parameters)
        now = sums.log_evidence - gates.penalty_of(parameters, ridge=2.0)
        assert now > before - 1e-9
        parameters, before = gates.next_gate(sums, parameters, ridge=2.0), now

    def loss(flat: np.ndarray) -> float:
        weights = flat.reshape(3, 3)
        scores = log_softmax(part.attributes @ weights.T) + part.log_evidence
        return -logsumexp(scores, axis=1).sum() + (weights[:, 1:] ** 2).sum()

    assert -before == pytest.approx(minimize(loss, np.zeros(9)).fun, abs=1e-3)


def test_sums_of_partitions_add():
    part, rng = problem()
    work = gates.GatePass(None)
    parameters = gates.GateParameters(rng.standard_normal((3, 3)))
    order = rng.permutation(300)
    halves = [gates.GatePartition(*(x[order[i::2]] for x in part)) for i in range(2)]
    whole = work.summarise(part, parameters)
    added = add(*(work.summarise(half, parameters) for half in halves))
    for one, other in zip(whole, added, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-9)


def test_the_evidence_of_a_user_is_that_of_all_their_rewards():
    """Against the density of the user's rewards under a multivariate normal, state by state."""
    from scipy.stats import multivariate_normal

    log = Log(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]), np.array([1.0, 0.6, 0.2, 0.9]),
              ("a", "b"), ("x", "y"))  # fmt: skip
    actual = state_evidence(Learned(MODEL, None, np.array([2, 2])), log)
    for state in range(2):
        mean = MODEL.means[state][[0, 0, 1]]
        shared = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]])
        covariance = 0.25 * np.eye(3) + 0.01 * shared
        expected = multivariate_normal(mean, covariance).logpdf([1.0, 0.6, 0.2])
        assert actual[0, state] == pytest.approx(expected)


def recovered(truth, model) -> float:
    users = draw_users(5_000, np.random.default_rng(99))
    prior = model.gate.log_prior(users, model.log_state_prior)
    without, got, best = round_one(truth, prior, model.expected_rewards(None)[0], users)
    return (got - without) / (best - without)


COLUMNS = ["country", "age", "device"]


@pytest.mark.slow
def test_the_gate_recovers_the_achievable_gain_in_round_one():
    """At least 90% of it, and a bug that mixes up whose attributes are whose is caught."""
    truth = generate_attributed(2_000, 12, seed=5)
    actual = fit(truth.table, user_features=COLUMNS, states=4, bootstrap=0)
    assert recovered(truth, actual.model) >= 0.9
    worth = actual.report["user_features"]["worth"]
    assert [row["round"] for row in worth] == [1, 2, 5]
    assert worth[0]["nats"] > 2 * worth[0]["nats_stderr"]
    assert worth[0]["reward"] > 2 * worth[0]["reward_stderr"]
    wrong = pl.DataFrame(truth.table).with_columns(
        pl.col(COLUMNS).reverse()  # the planted bug: attributes of other users
    )
    planted = fit(wrong, user_features=COLUMNS, states=4, bootstrap=0, assess=False)
    assert recovered(truth, planted.model) < 0.5


def test_attributes_that_users_outside_the_fit_do_not_confirm_change_nothing():
    """The device says nothing, although 60 held-out users alone gained 0.0015 +- 0.0010 nats."""
    truth = generate_attributed(300, 8, seed=3)
    options = {"rewards": "gaussian", "states": 3, "bootstrap": 0}
    plain = fit(truth.table, **options, assess=False)
    actual = fit(truth.table, **options, user_features=["device"])
    assert not actual.report["user_features"]["used"]
    assert any("(device) predicted nothing about users" in w for w in actual.report["warnings"])
    np.testing.assert_array_equal(actual.model.means, plain.model.means)
    prior = actual.model.gate.log_prior([{"device": "phone"}], actual.model.log_state_prior)
    np.testing.assert_allclose(prior, plain.model.log_state_prior, rtol=1e-12)
    worth = actual.report["user_features"]["worth"]
    assert [row["nats"] for row in worth] == pytest.approx([0, 0, 0], abs=1e-12)


def test_a_weak_attribute_is_confirmed_by_all_users():
    """On the 90 users for choices alone, the gain of the country is 0.073 +- 0.040 nats a user."""
    truth = generate_attributed(600, 8, strength=0.8, seed=0)
    options = {"rewards": "gaussian", "states": 3, "bootstrap": 0}
    actual = fit(truth.table, **options, user_features=["country"], assess=False).report[
        "user_features"
    ]
    assert actual["used"]
    best = max(actual["ridges"], key=lambda row: row["gain"])
    assert best["gain"] > 2 * best["stderr"]


def test_attributes_group_users_whose_rewards_alone_show_no_states():
    """Two noisy rows a user: a mixture of rewards has one state, and its gate recovers nothing."""
    truth = generate_attributed(1_000, 2, 3, 5, strength=2.5, noise=0.8, seed=8)
    actual = fit(truth.table, user_features=COLUMNS, rewards="gaussian", bootstrap=0, assess=False)
    assert actual.report["user_features"]["states_grouped_by_attributes"]
    assert actual.model.n_states == 2
    assert recovered(truth, actual.model) >= 0.9


@pytest.mark.slow
def test_states_and_gate_are_refined_together_where_users_have_few_rows(monkeypatch):
    """Four rows a user: without the refinement, the planted bug, almost nothing is recovered."""
    truth = generate_attributed(1_500, 4, seed=3)
    options = {"user_features": COLUMNS, "rewards": "gaussian", "states": 4, "bootstrap": 0,
               "assess": False}  # fmt: skip
    actual = fit(truth.table, **options)
    assert actual.report["user_features"]["states_refined_with_the_gate"]
    assert recovered(truth, actual.model) >= 0.9
    monkeypatch.setattr(gates, "can_refine", lambda learned: False)
    assert recovered(truth, fit(truth.table, **options).model) < 0.7


@pytest.mark.slow
def test_attributes_support_states_that_rewards_alone_do_not(monkeypatch):
    """Two states by rewards alone, which recover less; three with attributes."""
    truth = generate_attributed(1_000, 4, seed=20)
    options = {"user_features": COLUMNS, "rewards": "gaussian", "bootstrap": 0, "assess": False}
    actual = fit(truth.table, **options).model
    assert actual.n_states == 3
    assert recovered(truth, actual) >= 0.9
    monkeypatch.setattr(fitting, "choose_states", lambda learner, selection, *_: selection)
    alone = fit(truth.table, **options).model
    assert alone.n_states == 2
    assert recovered(truth, alone) < 0.85


def test_the_joint_bound_never_falls():
    truth = generate_attributed(300, 4, seed=3)
    options = {"rewards": "gaussian", "states": 3, "bootstrap": 0, "assess": False}
    actual = fit(truth.table, user_features=COLUMNS, **options)
    log = read_columns(truth.table, LogColumns("user", "action", "reward", more=tuple(COLUMNS)))
    log = Encoded(None, actual.model.gate.encoder)(log)
    problem = Problem.from_log(Gaussian(), log)
    rng = np.random.default_rng(0)
    means, gate = rng.random((3, log.n_actions)), GateParameters(rng.standard_normal((3, 7)))
    mixture, before = start_at(problem, means, np.full(3, 1 / 3)), -np.inf
    work = GatedPass(PrepareGated(problem.prepare))
    for _ in range(60):
        parameters = GatedParameters(mixtures.broadcast(problem.family, mixture), gate)
        sums = problem.engine.fold(work, parameters)
        bound = float(problem.bound_of_arms(mixture, sums.arms)[0])
        now = bound - gates.penalty_of(gate, ridge=1.0)
        assert now > before - 1e-8
        mixture, before = problem.step(mixture, sums.arms), now
        gate = gates.next_gate(sums.gate, gate, ridge=1.0)


def test_a_fit_states_what_it_took_where_attributes_change(tmp_path):
    truth = generate_attributed(200, 6, seed=1)
    table = pl.DataFrame(truth.table).with_row_index("time")
    moved = pl.col("country").replace({"AT": "DE", "CH": "DE", "DE": "FR", "FR": "DE"})
    first = table.filter(pl.col("user") < 3).group_by("user", maintain_order=True)
    later = first.tail(1).with_columns(moved.alias("country")).select(table.columns)
    table = pl.concat([table, later.with_columns(pl.col("time") + 10_000)])
    actual = fit(table, order="time", user_features=["country"], states=2, quick=True)
    assert actual.report["user_features"]["users_whose_attributes_change"] == 3
    assert any("number of such users: 3" in text for text in actual.report["warnings"])
    save_fit(actual, tmp_path / "model")
    assert load(tmp_path / "model").gate.names == ("country",)
    assert "What country are worth" in (tmp_path / "model" / "report.html").read_text()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["planet"], "no column planet"),
        (["same"], "same value in all rows"),
        (["country", "country"], "names country twice"),
        (["nothing"], "has no values"),
        (["unique"], "no category that can be learned from"),
        ("country", "must be a list of columns"),
    ],
)
def test_columns_that_say_nothing_are_refused(columns, message):
    truth = generate_attributed(30, 4, seed=1)
    n = len(truth.table["user"])
    table = truth.table | {
        "same": ["x"] * n,
        "nothing": pl.Series([None] * n, dtype=pl.String),
        "unique": [f"u{u}" for u in truth.table["user"]],
    }
    with pytest.raises(LogError, match=message):
        fit(table, user_features=columns, bootstrap=0)


def test_simulated_users_have_attributes_and_policies_are_told():
    from latentbandits import simulate
    from latentbandits.environments import UsersOfModel

    model = with_parts(
        GaussianArms([[0.9, 0.1], [0.1, 0.9]], noise=0.5),
        gate=Gate(
            Encoder((Category("country", ("AT", "DE"), (0.5, 0.5)),)),
            np.array([[0.0, 4.0], [0.0, -4.0]]),
            ({"country": "AT"}, {"country": "DE"}),
        ),
    )
    options = {"n_runs": 500, "horizon": 2, "seed": 1, "first_rounds": 1, "last_rounds": 1}
    told = simulate({"mTS": mTS}, UsersOfModel(model), **options)["mTS"].regret.mean
    untold = simulate({"mTS": mTS}, UsersOfModel(model, told=False), **options)["mTS"].regret.mean
    assert told < 0.2 * untold
