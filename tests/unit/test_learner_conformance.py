"""`check_learner` accepts what can be folded and catches what cannot; engines conform."""

import numpy as np
import pytest

from latentbandits.learning.arms import mixture as vb
from latentbandits.learning.arms.mixture import Prepare, Problem, best_of
from latentbandits.learning.backends.backend import MemoryEngine, add, tree_sum
from latentbandits.learning.generate import generate_arms
from latentbandits.learning.logs.rows import make_family
from latentbandits.testing import check_engine, check_learner

LOG = generate_arms(n_users=60, n_rounds=6, n_states=2, n_actions=3, seed=4).log


class Good:
    """The mean reward of every action, and its distance from the parameters."""

    def summarise(self, partition, parameters):
        n = partition.n_actions
        residual = partition.rewards - parameters[partition.actions]
        return (
            np.bincount(partition.actions, minlength=n),
            np.bincount(partition.actions, residual, minlength=n),
        )

    def step(self, sums, parameters):
        return parameters + sums[1] / np.maximum(sums[0], 1)


class MeanOfPartition(Good):
    def summarise(self, partition, parameters):
        counts, sums = super().summarise(partition, parameters)
        return counts, sums / np.maximum(counts, 1)


class ByPosition(Good):
    """Weighs a user by the place in the partition."""

    def summarise(self, partition, parameters):
        counts, sums = super().summarise(partition, parameters)
        weights = np.cos(partition.users)
        return counts, sums + np.bincount(partition.actions, weights, minlength=len(sums))


class FirstReward(Good):
    """Sees only the first row of a user."""

    def summarise(self, partition, parameters):
        return super().summarise(
            partition.of_events(np.diff(partition.users, prepend=-1) > 0), parameters
        )


class Remembers(Good):
    n_calls = 0

    def summarise(self, partition, parameters):
        self.n_calls += 1
        counts, sums = super().summarise(partition, parameters)
        return counts, sums + 1e-3 * self.n_calls


class ChangesParameters(Good):
    def summarise(self, partition, parameters):
        sums = super().summarise(partition, parameters)
        parameters += 1e-3
        return sums


class ChangesSums(Good):
    def step(self, sums, parameters):
        sums[1][:] = 0.0
        return parameters


class OtherShape(Good):
    def step(self, sums, parameters):
        return np.append(parameters, 0.0)

    def summarise(self, partition, parameters):
        counts, sums = super().summarise(partition, parameters)
        return counts, np.append(sums, np.zeros(len(parameters) - len(sums)))


def test_a_right_learner_is_accepted():
    check_learner(Good(), np.zeros(3), LOG)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (MeanOfPartition, "partitions, added"),
        (ByPosition, "added|shuffled users"),
        (FirstReward, "shuffled rows"),
        (Remembers, "called twice"),
        (ChangesParameters, "called twice|must not change"),
        (ChangesSums, "step must not change"),
        (OtherShape, "parameters that step returns"),
    ],
)
def test_wrong_learners_are_caught(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check_learner(wrong(), np.zeros(3), LOG)


def test_a_learner_that_needs_the_order_of_rows_may_say_so():
    check_learner(FirstReward(), np.zeros(3), LOG, rows_ordered=True)


def test_the_mixture_of_arms_conforms():
    family = make_family("gaussian", LOG.rewards)
    problem = Problem.from_log(family, LOG)

    class Climb(vb.MixturePass):
        """One step of the climb."""

        def step(self, sums, parameters):
            return vb.broadcast(family, problem.step(start, sums))

    start = best_of(problem, 2, n_starts=1).mixture
    check_learner(Climb(Prepare(family)), vb.broadcast(family, start), LOG)


def test_the_engine_in_memory_holds_the_log():
    check_engine(MemoryEngine(LOG), LOG)


def test_an_engine_that_loses_a_row_is_caught():
    broken = LOG.of_events(np.arange(LOG.n_events) != 7)
    with pytest.raises(AssertionError):
        check_engine(MemoryEngine(broken), LOG)


def test_blocks_of_buckets_may_be_added_anywhere():
    """The tree is fixed, so sums of aligned blocks give the same sum to the last bit."""
    rng = np.random.default_rng(0)
    sums = [(i, rng.standard_normal(5) * 10.0 ** rng.integers(-8, 8)) for i in range(16) if i != 6]
    whole = tree_sum(iter(sums), 16)
    for size in (1, 2, 4, 8):
        blocks = []
        for first in range(0, 16, size):
            own = [(i - first, part) for i, part in sums if first <= i < first + size]
            if own:
                blocks.append((first // size, tree_sum(iter(own), size)))
        assert np.array_equal(tree_sum(iter(blocks), 16 // size), whole)


def test_trees_add_leaf_by_leaf():
    assert add(({"a": 1}, 2.0), ({"a": 3}, 4.0)) == ({"a": 4}, 6.0)
    assert add(None, 3) == 3
