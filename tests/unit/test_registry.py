"""The one list of policies: names, options, inputs, and how a policy of one's own joins it."""

from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from latentbandits import (
    BernoulliArms,
    CategoricalArms,
    GaussianArms,
    LinearGaussian,
    Markov,
    mmTS,
)
from latentbandits.experiments.synthetic import policies as synthetic_policies
from latentbandits.policies import registry
from latentbandits.policies.registry import Entry, Inputs, build, entries, find, parse

RNG = np.random.default_rng(5)
ARMS = GaussianArms(RNG.random((3, 4)), 0.5, 0.2, [0.2, 0.3, 0.5])
LINEAR = LinearGaussian(RNG.normal(size=(3, 2)), 0.5, np.tile(0.1 * np.eye(2), (3, 1, 1)))

FIXED_ACTIONS = ("SingleKUCB", "UCBS", "UCBC", "TSC", "LatentOrderTS")
"""Refused by the class itself where actions come with features."""

OF_A_SHAPE = ("ProBALL", "Rank1Elim", "Rank1ElimKL")
"""Refused without a prior of one state, or without the numbers of rows and columns."""


@pytest.fixture
def own_policies():
    """Remove what a test registers."""
    before = dict(registry._registry.added)
    yield
    registry._registry.added = before
    vars(registry._registry).pop("declared", None)


@pytest.mark.parametrize(
    "text",
    [
        "mmTS",
        "mmTS(catch_all=True)",
        "EXP4(reward_range=(1, 5), rate=0.25)",
        "Discounted(policy='UCB1(scale=0.5)', factor=0.9)",
        "TS(prior_mean=-1e-3, prior_spread=2)",
    ],
)
def test_text_and_specification_are_the_same(text):
    spec = parse(text)
    assert str(spec) == text.replace("-1e-3", "-0.001")
    assert parse(str(spec)) == spec
    assert hash(parse(text)) == hash(spec)


def test_a_policy_inside_a_policy_needs_no_quotes():
    plain = parse("Discounted(policy=UCB1(scale=0.5), factor=0.9)")
    assert plain == parse("Discounted(policy='UCB1(scale=0.5)', factor=0.9)")
    policy = build(plain, Inputs(ARMS))
    assert (policy.policy.scale, policy.factor) == (0.5, 0.9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mmST", "did you mean 'mmTS'"),
        ("mmTS(catchall=True)", "did you mean 'catch_all'"),
        ("mmTS(True)", "options have names"),
        ("mmTS(**{'catch_all': True})", "options have names"),
        ("mmTS(catch_all=open('x'))", "must be a literal"),
        ("mmTS(catch_all=yes)", "must be a literal"),
        ("mmTS(catch_all={1: 2})", "must be a number, text"),
        ("mmTS(propensity_draws=1e999)", "finite"),
        ("mmTS(propensity_draws=" + "9" * 900 + ")", "at most 9007199254740992"),
        ("mmTS(catch_all=True, catch_all=False)", "given twice"),
        ("__import__('os').system('true')", "cannot read"),
        ("mmTS; mTS", "cannot read"),
        ("", "cannot read"),
        ("mmTS(" + "(" * 400, "cannot read"),
        ("m" * 2000, "at most 1000"),
        ("uniform(x=1)", "no options"),
        ("auto", "unknown policy"),
    ],
)
def test_what_cannot_be_a_policy_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
@pytest.mark.parametrize("model", [ARMS, LINEAR], ids=["arms", "linear"])
def test_every_policy_is_built_or_says_what_it_needs(entry, model):
    inputs = Inputs(model, horizon=50)
    if entry.missing(inputs) or (entry.name in FIXED_ACTIONS and model is LINEAR):
        with pytest.raises(ValueError, match=f"{entry.name} needs (a model|the number of users)"):
            build(entry.name, inputs)
        return
    if entry.name in OF_A_SHAPE:
        with pytest.raises(ValueError, match=f"{entry.name} needs (the numbers of rows|a Linear)"):
            build(entry.name, inputs)
        return
    policy = build(entry.name, inputs)
    assert policy.init(2)[0].shape[0] == 2
    assert entry.summary
    assert entry.source


def test_needs_follow_from_the_builder():
    assert find("mmTS").needs == ("model",)
    assert find("LinTS").needs == ("n_features",)
    assert find("TS").needs == ("n_actions",)
    assert find("mmTS").options == ("propensity_draws", "catch_all")
    assert "horizon" in find("mUCB").options


def test_options_win_over_inputs():
    assert build("mUCB", Inputs(ARMS, horizon=50)).horizon == 50
    assert build("mUCB(horizon=7)", Inputs(ARMS, horizon=50)).horizon == 7


def test_ts_takes_the_declared_range_else_the_model_s_prior():
    declared = build("TS", Inputs(ARMS, reward_range=(1.0, 5.0)))
    assert (declared.prior_mean, declared.noise) == (3.0, 0.5)
    assert declared.prior_spread == pytest.approx(4 / 12**0.5)
    own = build("TS", Inputs(ARMS))
    draws = np.random.default_rng(1)
    state = draws.choice(3, p=[0.2, 0.3, 0.5], size=400_000)
    action = draws.integers(4, size=400_000)
    means = ARMS.means[state, action] + 0.2 * draws.standard_normal(400_000)
    assert own.prior_mean == pytest.approx(means.mean(), abs=0.003)
    assert own.prior_spread == pytest.approx(means.std(), abs=0.003)
    certain = build("TS", Inputs(GaussianArms([[0.3, 0.3]], noise=0.7)))
    assert certain.prior_spread == 0.7


def test_scales_follow_from_the_model():
    assert build("UCB1", Inputs(ARMS)).scale == 0.5
    assert build("UCB1(scale=1)", Inputs(ARMS)).scale == 1
    low, high = build("EXP4", Inputs(ARMS)).reward_range
    assert (low, high) == (ARMS.means.min() - 1.0, ARMS.means.max() + 1.0)
    assert build("EXP4", Inputs(ARMS, reward_range=(0, 2))).reward_range == (0, 2)
    assert build("EXP4(reward_range=[0, 3])", Inputs(ARMS)).reward_range == (0, 3)
    assert build("EXP4", Inputs(LINEAR)).reward_range == (0.0, 1.0)
    items = RNG.normal(size=(7, 2))
    rewards = items @ LINEAR.weights.T
    actual = build("EXP4", Inputs(LINEAR, items=items)).reward_range
    np.testing.assert_allclose(actual, (rewards.min() - 1.0, rewards.max() + 1.0))
    clicks = BernoulliArms([[1.0, 2.0]], 1.0)
    assert build("EXP4", Inputs(clicks)).reward_range == (0.0, 1.0)
    assert build("EXP4", Inputs(Markov(clicks, [[1.0]]))).reward_range == (0.0, 1.0)
    stars = CategoricalArms([[[1.0, 1.0, 1.0]]], [1.0, 2.0, 5.0])
    assert build("EXP4", Inputs(stars)).reward_range == (1.0, 5.0)


def test_mmucb_s_slack_is_that_of_the_average_item():
    items = RNG.normal(size=(7, 2)) + 1
    policy = build("mmUCB", Inputs(LINEAR, items=items))
    x = items.mean(axis=0)
    assert policy.slack == pytest.approx(max(float(x @ c @ x) for c in LINEAR.covariances) ** 0.5)
    assert build("mmUCB(slack=0.5)", Inputs(LINEAR, items=items)).slack == 0.5
    assert build("mmUCB", Inputs(LINEAR)).epsilon == LINEAR.spread_bound


def test_a_policy_of_one_s_own_is_one_call(own_policies):
    class Mine(mmTS):
        pass

    entry = registry.register(Entry("Mine", Mine, summary="a policy of one's own"))
    assert find("Mine") is entry
    assert entry in entries()
    assert type(build("Mine(propensity_draws=3)", Inputs(ARMS))) is Mine
    with pytest.raises(ValueError, match="already"):
        registry.register(Entry("Mine", Mine))


@pytest.mark.parametrize("name", ["auto", "two words", ""])
def test_names_that_cannot_be_typed_are_refused(name):
    with pytest.raises(ValueError, match="name of a policy"):
        Entry(name, mmTS)


def test_entry_points_of_other_packages_are_loaded(own_policies, monkeypatch):
    points = [
        EntryPoint("Other", "latentbandits.policies.latent.sampling:mTS", registry.ENTRY_POINTS),
        EntryPoint("Broken", "nowhere_at_all:Policy", registry.ENTRY_POINTS),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    vars(registry._registry).pop("declared", None)  # not read before
    with pytest.warns(UserWarning, match="'Broken' of nowhere_at_all:Policy was not loaded"):
        assert find("Other").build.__name__ == "mTS"
    assert "Other" in [entry.name for entry in entries()]


def test_wrong_options_are_a_clear_error():
    with pytest.raises(ValueError, match="cannot build mmUCB"):
        build("mmUCB(slack='much')", Inputs(ARMS))


def test_the_tables_of_policies_in_the_documentation_are_those_of_the_registry():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "policies.md").read_text()
    for scope in ("session", "population"):
        for line in registry.as_markdown(scope).splitlines():
            assert line in page, f"docs/reference/policies.md lacks the line:\n{line}"


def test_the_policies_of_the_papers_experiment():
    """The registry gives what the paper's settings say: priors, scales and ranges."""
    made = {name: make(ARMS) for name, make in synthetic_policies(None, 500).items()}
    assert (made["UCB1"].scale, made["UCB1(scale=0.5)"].scale) == (1, 0.5)
    assert (made["TS"].prior_mean, made["TS"].noise) == (0.5, 0.5)
    assert made["TS"].prior_spread == pytest.approx((1 / 12) ** 0.5)
    assert (made["EXP4"].reward_range, made["EXP4"].horizon) == ((0.0, 1.0), 500)
    assert (made["mUCB"].horizon, made["mmUCB"].horizon, made["mmUCB"].slack) == (500, 500, None)
