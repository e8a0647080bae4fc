"""A belief survives its encoding to the last bit, and nothing else is taken for it."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentbandits import (
    BernoulliArms,
    CategoricalArms,
    Decision,
    Ensemble,
    ExponentialArms,
    GaussianArms,
    GaussianArmsUnknownNoise,
    LinearGaussian,
    LinearGaussianUnknownNoise,
    LogisticLinear,
    Markov,
    PoissonArms,
    mmTS,
    mTS,
)
from latentbandits.beliefs.encoding import BeliefError, can_encode, decode, encode
from latentbandits.policies.protocol import Policy
from latentbandits.policies.registry import Inputs, build, entries
from latentbandits.testing.trees import leaves

RNG = np.random.default_rng(3)
ARMS = GaussianArms(RNG.random((3, 4)), 0.5, 0.2)
COVARIANCES = np.tile(0.1 * np.eye(2), (3, 1, 1))
WEIGHTS = RNG.normal(size=(3, 2))
CLICKS = BernoulliArms(1 + RNG.random((3, 4)), 1.0)
MODELS = {
    "GaussianArms": ARMS,
    "GaussianArms of every session": GaussianArms(RNG.random((5, 3, 4)), 0.5, 0.2),
    "GaussianArmsUnknownNoise": GaussianArmsUnknownNoise(RNG.random((3, 4)), 2.0, 0.5, 5.0),
    "BernoulliArms": CLICKS,
    "PoissonArms": PoissonArms(1 + RNG.random((3, 4)), 1.0),
    "ExponentialArms": ExponentialArms(2 + RNG.random((3, 4)), 1.0),
    "CategoricalArms": CategoricalArms(1 + RNG.random((3, 4, 2)), [0.0, 1.0]),
    "LinearGaussian": LinearGaussian(WEIGHTS, 0.5, COVARIANCES),
    "LinearGaussianUnknownNoise": LinearGaussianUnknownNoise(WEIGHTS, COVARIANCES, 0.5, 5.0),
    "LogisticLinear": LogisticLinear(WEIGHTS, COVARIANCES, n_particles=64),
    "Markov": Markov.switching(ARMS, 0.1, n_paths=4),
    "Markov of a certain model": Markov.switching(GaussianArms(ARMS.means, 0.5), 0.1),
    "Ensemble": Ensemble([ARMS, GaussianArms(RNG.random((3, 4)), 0.5, 0.2)]),
}
N = 5


def cases():
    for name, model in MODELS.items():
        for entry in entries():
            if entry.scope == "session" and entry.fits(Inputs(model)):
                yield pytest.param(model, entry.name, id=f"{entry.name} on {name}")


def context_of(model, rng):
    return None if model.n_actions is not None else rng.normal(size=(N, 4, 2))


def play(policy, model, belief, rounds, seed):
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        context = context_of(model, rng)
        decision = policy.decide(belief, context, rng)
        belief = policy.update(belief, context, decision, rng.integers(2, size=N).astype(float))
    return belief


def assert_same_bits(actual, expected):
    assert type(actual) is type(expected)
    for a, b in zip(leaves(actual), leaves(expected), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(("model", "name"), list(cases()))
def test_every_policy_s_belief_is_restored_to_the_last_bit(model, name):
    policy = build(name, Inputs(model))
    belief = policy.init(N)
    for rounds in (0, 1, 6):
        belief = play(policy, model, belief, rounds, seed=rounds)
        again = decode(policy, encode(policy, belief))
        assert_same_bits(again, belief)
        assert encode(policy, again) == encode(policy, belief)
    ours, theirs = (play(policy, model, b, 3, seed=9) for b in (again, belief))
    assert_same_bits(ours, theirs)
    assert can_encode(policy)


@settings(deadline=None, max_examples=60)
@given(
    rewards=st.lists(st.floats(-1e6, 1e6), max_size=5),
    n_sessions=st.integers(1, 4),
    n_states=st.integers(1, 4),
)
def test_any_history_survives(rewards, n_sessions, n_states):
    policy = mmTS(GaussianArms(np.arange(2.0 * n_states).reshape(n_states, 2), 0.5, 0.2))
    belief = policy.init(n_sessions)
    for reward in rewards:
        decision = Decision.logged(np.arange(n_sessions) % 2)
        belief = policy.update(belief, None, decision, np.full(n_sessions, reward))
    assert_same_bits(decode(policy, encode(policy, belief)), belief)


def test_every_flipped_bit_and_every_lost_byte_is_noticed():
    policy = mmTS(ARMS)
    data = encode(policy, play(policy, ARMS, policy.init(N), 2, seed=0))
    for place in range(len(data)):
        for bit in (0, 3, 7):
            bad = bytearray(data)
            bad[place] ^= 1 << bit
            with pytest.raises(BeliefError):
                decode(policy, bytes(bad))
    for length in range(len(data)):
        with pytest.raises(BeliefError):
            decode(policy, data[:length])
    with pytest.raises(BeliefError):
        decode(policy, data + b"\0")


@pytest.mark.parametrize(
    "other",
    [
        mmTS(replace(ARMS, noise=0.6)),
        mmTS(GaussianArms(ARMS.means + 1e-12, 0.5, 0.2)),
        mmTS(ARMS, propensity_draws=7),
        mTS(ARMS),
    ],
    ids=["other noise", "other means", "other option", "other policy"],
)
def test_the_belief_of_another_policy_or_model_is_refused(other):
    policy = mmTS(ARMS)
    with pytest.raises(BeliefError, match="not one of this"):
        decode(other, encode(policy, policy.init(2)))


def test_an_equal_policy_takes_it():
    data = encode(mmTS(ARMS), mmTS(ARMS).init(2))
    twin = mmTS(GaussianArms(ARMS.means, 0.5, 0.2))
    assert_same_bits(decode(twin, data), twin.init(2))


def test_an_axis_that_is_repeated_is_stored_once():
    many = Markov.switching(GaussianArms(np.zeros((4, 10)), 0.5, 0.2), 0.1, n_paths=64)
    policy = mmTS(many)
    belief = policy.init()
    assert sum(leaf.nbytes for leaf in leaves(belief)) > 150_000
    assert len(encode(policy, belief)) < 5_000


class Counts(NamedTuple):
    tried: list
    extra: dict
    best: float
    note: None


class Bare(Policy[Any]):
    """A policy of which only the beliefs matter here."""

    def decide(self, *_: Any, **__: Any) -> Any: ...

    def update(self, *_: Any, **__: Any) -> Any: ...


@dataclass(frozen=True)
class Own(Bare):
    """A policy of one's own, whose belief is a tree of plain Python containers."""

    grows: bool = False

    def init(self, n_sessions=1):
        return Counts([np.zeros(n_sessions)], {"b": np.ones(n_sessions, np.float32)}, 0.5, None)


def test_a_policy_of_one_s_own_is_encoded_too():
    policy = Own()
    belief = Counts([np.array([1.0])], {"b": np.array([2.0], np.float32)}, 0.25, None)
    again = decode(policy, encode(policy, belief))
    assert again == belief
    assert type(again.best) is float


@pytest.mark.parametrize(
    "belief",
    [
        Counts([np.zeros(1), np.zeros(1)], {"b": np.ones(1, np.float32)}, 0.5, None),
        Counts([np.zeros(1)], {"c": np.ones(1, np.float32)}, 0.5, None),
        Counts([np.zeros(1)], {"b": np.ones(1, np.float32)}, 0.5, 3.0),
        Counts([np.array(["x"])], {"b": np.ones(1, np.float32)}, 0.5, None),
        Counts([np.array([None])], {"b": np.ones(1, np.float32)}, 0.5, None),
        (1, 2),
    ],
)
def test_a_belief_of_another_structure_is_refused(belief):
    with pytest.raises(BeliefError):
        encode(Own(), belief)


def test_a_policy_without_a_tree_of_arrays_is_reported():
    class Talks(Bare):
        def init(self, n_sessions=1):
            return "nothing yet"

    class Draws(Bare):
        def __init__(self):
            self.rng = np.random.default_rng(0)

        def init(self, n_sessions=1):
            return np.zeros(n_sessions)

    assert not can_encode(Talks())
    assert not can_encode(Draws())
