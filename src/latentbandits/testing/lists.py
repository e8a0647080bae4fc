"""Checks of the lists of any policy, which `check_policy` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from latentbandits.models.clicks import Cascade, ClickModel, Each
from latentbandits.models.protocol import is_order_free
from latentbandits.policies.lists import ListDecision, decide_list, update_list
from latentbandits.testing.trees import assert_same, context_of, rows

if TYPE_CHECKING:
    from latentbandits.testing.policies import Case

N_SESSIONS = 4
LENGTH = 3
N_LISTS = 20_000
N_CERTAIN_LISTS = 2_000  # of a policy that says that each of its actions is certain
N_KNOWN = 300
LIST_ERRORS = 6.0  # standard errors: a correct policy fails with probability below 1e-6


def lists(case: Case) -> None:
    """Check the lists of a policy in the click models that suit its rewards."""
    length = min(LENGTH, case.n_actions)
    models: list[ClickModel] = [Each()]
    if case.policy.for_clicks:
        models.append(Cascade())
    for clicks in models:
        _distinct_and_eligible(case, clicks, length)
        _one_action(case, clicks)
        _whole_lists(case, clicks, length)
        _in_a_batch(case, clicks, length)
    if case.policy.for_clicks:
        _observed_rounds(case, length)


def _distinct_and_eligible(case: Case, clicks: ClickModel, length: int) -> None:
    """The actions of a list differ, and all of them are eligible."""
    belief, _ = case.play(N_SESSIONS, 2)
    rng = case.rng(20)
    for _ in range(5):
        mask = np.zeros((N_SESSIONS, case.n_actions), np.bool_)
        for row in mask:
            row[rng.choice(case.n_actions, rng.integers(length, case.n_actions + 1), False)] = True
        context = case.context(N_SESSIONS, rng)
        shown = decide_list(case.policy, belief, context, rng, length, clicks, eligible=mask)
        assert shown.actions.shape == (N_SESSIONS, length), f"lists of shape {shown.actions.shape}"
        for session, actions in enumerate(shown.actions):
            assert len(set(actions)) == length, f"the list {actions} repeats an action"
            assert mask[session, actions].all(), f"the list {actions} has an ineligible action"
        chances = shown.propensities
        if chances is not None:
            assert (chances > 0).all(), "an action of a list has propensity zero"
            assert (chances <= 1 + 1e-9).all(), "a propensity above one in a list"


def _one_action(case: Case, clicks: ClickModel) -> None:
    """A list of one action is the decision of `decide`, to the last bit."""
    belief, _ = case.play(N_SESSIONS, 2)
    context = case.context(N_SESSIONS, case.rng(21))
    single = case.policy.decide(belief, context, case.rng(22))
    shown = decide_list(case.policy, belief, context, case.rng(22), 1, clicks)
    assert_same(shown.actions[:, 0], single.action, "a list of one action decides otherwise")
    assert_same(shown.states[:, 0], single.state, "a list of one action believes otherwise")
    if single.propensity is not None and shown.propensities is not None:
        chance = shown.propensities[:, 0]
        assert_same(chance, single.propensity, "a list of one action has another propensity")


def _whole_lists(case: Case, clicks: ClickModel, length: int) -> None:
    """Lists are shown as often as the product of their propensities says."""
    belief, _ = case.play(1, 2)
    context = case.context(1, case.rng(23))
    known = _repeated(case, belief, context, clicks, length, N_KNOWN, True)
    if known.propensities is None or known.propensity_kind not in ("exact", "quadrature"):
        return
    chances = dict(zip(_codes(case, known), known.propensities.prod(axis=1).tolist(), strict=True))
    n_lists = N_CERTAIN_LISTS if bool((known.propensities == 1).all()) else N_LISTS
    shown = _codes(case, _repeated(case, belief, context, clicks, length, n_lists, False))
    counts = np.bincount(shown, minlength=case.n_actions**length)
    for code, chance in chances.items():
        spread = np.sqrt(n_lists * chance * max(1 - chance, 0.0)) + 0.5
        errors = abs(counts[code] - n_lists * chance) / spread
        assert errors < LIST_ERRORS, (
            f"a list of the click model {clicks.name!r} was shown {counts[code]} times, and the "
            f"product of its propensities says {n_lists * chance:.0f}: {errors:.1f} standard errors"
        )


def _repeated(
    case: Case,
    belief: Any,
    context: Any,
    clicks: ClickModel,
    length: int,
    n_sessions: int,
    propensity: bool,
) -> ListDecision:
    """Return lists of many sessions with the same belief and context."""
    many = np.zeros(n_sessions, np.int64)
    wide = context_of(context, many)
    rng, beliefs = case.rng(24 + propensity), rows(belief, many)
    return decide_list(case.policy, beliefs, wide, rng, length, clicks, propensity=propensity)


def _codes(case: Case, shown: ListDecision) -> Any:
    return shown.actions @ case.n_actions ** np.arange(shown.length)


def _observed_rounds(case: Case, length: int) -> None:
    """The belief after a cascade equals the belief after one round for each observed position."""
    model = case.policy.model_or_none
    if case.policy.order_free is False or (model is not None and not is_order_free(model)):
        return  # time moves once for a list, but after every round
    belief, _ = case.play(N_SESSIONS, 2)
    rng = case.rng(26)
    context = case.context(N_SESSIONS, rng)
    shown = decide_list(case.policy, belief, context, rng, length, Cascade())
    attracted = (rng.random(shown.actions.shape) < 0.5).astype(np.float64)
    rewards = Cascade().react(attracted, np.empty(0))
    after = update_list(case.policy, belief, context, shown, rewards, Cascade())
    for session in range(N_SESSIONS):
        one = np.array([session])
        alone = rows(belief, one)
        here = context_of(context, one)
        seen = ~np.isnan(rewards[session])
        for position in np.flatnonzero(seen):
            decision = shown.positions[position].take(one)
            alone = case.policy.update(alone, here, decision, rewards[one, position])
        same_decisions(case, alone, rows(after, one), here, "a cascade teaches")


def _in_a_batch(case: Case, clicks: ClickModel, length: int) -> None:
    """Sessions with different observed positions learn the same together as alone."""
    belief, _ = case.play(N_SESSIONS, 1)
    rng, policy = case.rng(28), case.policy
    context = case.context(N_SESSIONS, rng)
    alone: list[Any] = [rows(belief, np.array([session])) for session in range(N_SESSIONS)]
    for _ in range(2):
        shown = decide_list(policy, belief, context, rng, length, clicks)
        if clicks.unrolled:
            attracted = (rng.random((N_SESSIONS, length)) < 0.5).astype(np.float64)
            rewards = clicks.react(attracted, np.empty(0))
        else:
            rewards = np.stack([case.reward(N_SESSIONS, rng) for _ in range(length)], axis=1)
            rewards[rng.random(rewards.shape) < 0.3] = np.nan
        belief = update_list(policy, belief, context, shown, rewards, clicks)
        for session, before in enumerate(alone):
            one = np.array([session])
            here = context_of(context, one)
            taken = ListDecision(tuple(position.take(one) for position in shown.positions))
            alone[session] = update_list(policy, before, here, taken, rewards[one], clicks)
    for session, after in enumerate(alone):
        one = np.array([session])
        here = context_of(context, one)
        same_decisions(case, after, rows(belief, one), here, "a list in a batch teaches")


def same_decisions(
    case: Case, expected: Any, belief: Any, context: Any, what: str, tolerance: float = 1e-12
) -> None:
    """Assert that two beliefs have the same probabilities of states and of actions."""
    states = case.policy.state_probabilities(expected)
    if states is not None:
        now = case.policy.state_probabilities(belief)
        assert_same(now, states, f"{what} other state probabilities", tolerance)
    one, other = (
        case.policy.action_probabilities(b, context, case.rng(27)) for b in (expected, belief)
    )
    if one is not None and other is not None and one.kind in ("exact", "quadrature"):
        assert_same(other.values, one.values, f"{what} other actions", 1e-6)
