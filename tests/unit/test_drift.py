"""The claims of the experiment `drift` can fail; its policies remember as long as they say."""

import pytest
from evidence import drift as claims
from evidence.drift import KNOWING, LONG_PROBLEM, PROBLEM, policies

from latentbandits.environments import Switching, Synthetic
from latentbandits.experiments.experiment import check_all
from latentbandits.models import GaussianArms
from latentbandits.simulation import Results, simulate


@pytest.fixture(scope="module")
def results():
    """Markov mTS is far ahead of mTS here."""
    names = ("mTS", "Markov mTS")
    makers = policies(PROBLEM, 0.02, 300)
    environment = Switching(Synthetic(model_noise=0.05), 0.02, "markov")
    return simulate({n: makers[n] for n in names}, environment, n_runs=60, horizon=300, seed=9)


def swapped(results):
    return Results({"mTS": results["Markov mTS"], "Markov mTS": results["mTS"]})


def test_a_claim_that_knowing_pays_fails_where_it_does_not(results):
    claim = claims.pays("id", "claim", "Markov mTS", ("s",))
    assert claim.check({"s": results}).holds is True
    assert claim.check({"s": swapped(results)}).holds is False


def test_a_claim_that_knowing_does_not_pay_fails_where_it_does(results):
    claim = claims.does_not_pay("id", "claim", "Markov mTS", ("s",))
    assert claim.check({"s": results}).holds is False
    assert claim.check({"s": swapped(results)}).holds is True


def test_a_claim_that_little_is_lost_fails_where_much_is(results):
    claim = claims.loses_little("id", "claim", "Markov mTS", "s")
    assert claim.check({"s": results}).holds is True
    assert claim.check({"s": swapped(results)}).holds is False


def test_leads_are_the_twins_regret_less_the_own(results):
    lead = claims.lead({"s": results}, "s", "Markov mTS")
    assert lead.mean == pytest.approx(
        results["mTS"].regret.mean - results["Markov mTS"].regret.mean
    )
    table = claims.lead_table("title", {"s": results})
    assert table.rows == [("Markov mTS over mTS", str(lead))]


def test_every_policy_that_knows_has_a_claim_where_it_is_played(results):
    claimed = {name for claim in claims.CLAIMS for name in claim.policies}
    long = {name for claim in claims.LONG_CLAIMS for name in claim.policies}
    assert claimed >= set(KNOWING)
    assert long >= set(KNOWING) - {"Markov mmTS"}
    assert check_all(claims.LONG_CLAIMS, {}) == []


@pytest.mark.parametrize(("problem", "n_actions"), [(PROBLEM, 10), (LONG_PROBLEM, 3)])
def test_memory_is_in_proportion_to_the_alternatives(problem, n_actions):
    """At p = 0.01, 1 / sqrt(p) = 10: windows of 40, and discounts of 80 rounds, for each."""
    made = policies(problem, 0.01, 1000)
    model = GaussianArms([[0.5] * n_actions] * 5, 0.5, 0.1)
    assert made["window UCB1"](model).rounds == 40 * n_actions
    assert 1 / (1 - made["discounted UCB1"](model).factor) == pytest.approx(80 * n_actions)
    for inner in ("mUCB", "mmUCB"):
        assert made[f"window {inner}"](model).rounds == 40 * 5
        assert 1 / (1 - made[f"discounted {inner}"](model).factor) == pytest.approx(80 * 5)
    assert (
        policies(problem, 0.0, 100)["window UCB1"](model).rounds == 100
    )  # never longer than the run
