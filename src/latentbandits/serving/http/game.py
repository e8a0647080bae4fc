"""The game behind /play: a visitor picks actions, and the policy finds out the visitor's state.

A game is a model, a seed and the visitor's picks. Each request replays it from the first round, so
nothing is stored: no session, no decision, no reward, and nothing that statistics or `relearn`
could count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from latentbandits.models.checks import FloatArray
from latentbandits.models.clicks import AnyClickModel, ClickModel, Each, as_click_model
from latentbandits.models.protocol import with_defaults
from latentbandits.policies.lists import check_click_model, decide_list
from latentbandits.serving.engine.actions import visit
from latentbandits.serving.engine.models import ServedModel
from latentbandits.serving.engine.replay import state_probabilities
from latentbandits.serving.engine.values import DecisionRequest
from latentbandits.serving.errors import Invalid
from latentbandits.serving.http.messages import PlayRequest, PlayView
from latentbandits.serving.http.views import expected_rewards, telling
from latentbandits.serving.settings import MAIN

OFFERED = 4
LISTED = 3


def play(
    served: ServedModel, request: PlayRequest, click_model: AnyClickModel = "each"
) -> PlayView:
    """Return the game after the visitor's picks; Invalid if it cannot be played."""
    ids = served.space.names
    if ids is None:
        raise Invalid(
            "the active model has no catalogue of actions: its callers send features with each "
            "request, so there is nothing to pick from"
        )
    expected = expected_rewards(served)
    shelf = [int(a) for a in telling(served, expected) if ids[a] not in served.space.retired]
    if len(shelf) < 2:
        raise Invalid(f"the active model offers {len(shelf)} action: there is nothing to pick from")
    policy = served.of_group(MAIN).policy
    belief = policy.init(1)
    moments = state_probabilities(policy, belief)
    guesses: list[str] = []
    taken: list[str] = []
    offer, rng = _deal(shelf, request.seed, 0)
    for pick in request.picks:
        if pick >= len(offer):
            raise Invalid(f"the pick {pick} is none of the {len(offer)} actions that were offered")
        names = [ids[a] for a in offer]
        rewards = pick_rewards(served.model, expected[:, offer], pick)
        try:
            guess, belief = _decide_and_learn(served, belief, names, rewards, rng)
            if guess != pick:  # learn the pick too, as a decision without a choice
                alone = [names[pick]], [rewards[pick]]
                _, belief = _decide_and_learn(served, belief, *alone, rng)
        except ValueError as error:
            raise Invalid(f"the policy cannot learn this pick: {error}") from None
        guesses.append(names[guess])
        taken.append(names[pick])
        moments += state_probabilities(policy, belief)
        offer, rng = _deal(shelf, request.seed, len(taken))
    rng = np.random.default_rng([request.seed, len(taken), 1])
    shown = _next_list(served, belief, as_click_model(click_model), rng)
    return PlayView(served.id, [ids[a] for a in offer], guesses, taken, moments, shown)


def pick_rewards(model: Any, expected: FloatArray, pick: int) -> list[float]:
    """Return the reward that a pick stands for, for each action of the offer.

    A pick says which action is best, but not its reward. The reward of an action is its mean over
    the states in which the picked action is best or, if there is none, closest to the best;
    `expected` is `(n_states, n_offered)`. Where the model does not allow this reward, the picked
    action gets the next higher reward that the model allows, and the other actions the next lower
    one. For clicks these are 1 and 0.

    >>> from latentbandits import BernoulliArms, GaussianArms
    >>> expected = np.array([[0.9, 0.2], [0.3, 0.4]])
    >>> pick_rewards(GaussianArms(expected, noise=1.0), expected, 0)
    [0.9, 0.2]
    >>> pick_rewards(BernoulliArms.from_means(expected, 0.1), expected, 0)
    [1.0, 0.0]
    """
    missed = expected.max(axis=1) - expected[:, pick]
    worth = expected[missed == missed.min()].mean(axis=0)
    support = with_defaults(model).support
    allowed = [support.around(value) for value in worth.tolist()]
    return [above if place == pick else below for place, (below, above) in enumerate(allowed)]


def _deal(shelf: Sequence[int], seed: int, number: int) -> tuple[list[int], np.random.Generator]:
    """Return the actions that are offered in a round, and the round's generator."""
    rng = np.random.default_rng([seed, number])
    return rng.permutation(shelf)[:OFFERED].tolist(), rng


def _next_list(
    served: ServedModel, belief: Any, clicks: ClickModel, rng: np.random.Generator
) -> list[str]:
    """Return the list that the policy would show, of LISTED actions if there are as many."""
    group = served.of_group(MAIN)
    inputs = served.space.ask(DecisionRequest(""))
    mask = inputs.eligible
    length = min(LISTED, inputs.n_actions if mask is None else int(mask.sum()))
    try:
        check_click_model(group.policy, clicks)
        clicks.check_length(length)
    except ValueError:  # the policy cannot show lists under this click model
        clicks = Each()
    context = inputs.context if group.n_users is None else visit(0, inputs.context)
    needed = group.policy.learns_from == "own"
    shown = decide_list(
        group.policy, belief, context, rng, length, clicks, eligible=mask, propensity=needed
    )
    return [inputs.answer(action)[0] for action in shown.actions[0].tolist()]


def _decide_and_learn(
    served: ServedModel,
    belief: Any,
    names: Sequence[str],
    rewards: Sequence[float],
    rng: np.random.Generator,
) -> tuple[int, Any]:
    """Return the place of the policy's decision among `names`, and the belief after its reward."""
    group = served.of_group(MAIN)
    inputs = served.space.ask(DecisionRequest("", list(names)))
    context = inputs.context if group.n_users is None else visit(0, inputs.context)
    decision = group.policy.decide(
        belief,
        context,
        rng,
        eligible=inputs.eligible,
        propensity=group.policy.learns_from == "own",
    )
    place = inputs.answer(int(decision.action[0]))[1]
    return place, group.policy.update(belief, context, decision, [rewards[place]])
