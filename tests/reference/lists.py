"""Lists by brute force, one session at a time: every list, every reaction, every path of states."""

import itertools

import numpy as np


def list_probabilities(choose, condition, belief, n_actions, length, unrolled):
    """P(list) of every list of different actions, as a dictionary.

    `choose(belief, allowed)` returns P(action) of all actions, and `condition(belief, action)` the
    belief after no click on the action.
    """
    chances = {}
    for shown in itertools.permutations(range(n_actions), length):
        chance, here = 1.0, belief
        for position, action in enumerate(shown):
            allowed = [a for a in range(n_actions) if a not in shown[:position]]
            chance *= choose(here, allowed)[action]
            if unrolled:
                here = condition(here, action)
        chances[shown] = chance
    return chances


def thompson(rates):
    """`choose` and `condition` of mTS: the belief is P(s), and the best action of s is played."""

    def choose(weights, allowed):
        chances = np.zeros(rates.shape[1])
        for s, weight in enumerate(weights):
            top = max(rates[s, a] for a in allowed)
            best = [a for a in allowed if rates[s, a] == top]
            for a in best:
                chances[a] += weight / len(best)
        return chances

    def condition(weights, action):
        after = weights * (1 - rates[:, action])
        return after / after.sum()

    return choose, condition


def expected_clicks(rates, weights, shown):
    """P(click) of a list in a cascade, from the probability of every state and every reaction."""
    total = 0.0
    for s, weight in enumerate(weights):
        for attracted in itertools.product((0, 1), repeat=len(shown)):
            chance = weight
            for action, one in zip(shown, attracted, strict=True):
                chance *= rates[s, action] if one else 1 - rates[s, action]
            total += chance * any(attracted)
    return total


def greedy_coverage(rates, weights, length):
    """The greedy rule of coverage: the action that adds most to P(click), one after the other."""
    shown = ()
    for _ in range(length):
        rest = [a for a in range(rates.shape[1]) if a not in shown]
        shown += (max(rest, key=lambda a: expected_clicks(rates, weights, (*shown, a))),)
    return shown


def positions_posterior(rates, weights, examination, lists):
    """P(s) after lists of (action, click) by position: sum over who looked at which position."""
    after = np.array(weights, float)
    for shown in lists:
        for s in range(len(after)):
            chance = 0.0
            for looked in itertools.product((0, 1), repeat=len(shown)):
                one = 1.0
                for e, look, (action, click) in zip(examination, looked, shown, strict=False):
                    attracted = rates[s, action]
                    one *= e if look else 1 - e
                    one *= (attracted if click else 1 - attracted) if look else 1.0 - click
                chance += one
            after[s] *= chance
    return after / after.sum()


def moving_posterior(rates, weights, transition, lists):
    """P(s) of the next list, over every path of states; the state moves between lists only."""
    n_states = len(weights)
    after = np.zeros(n_states)
    for path in itertools.product(range(n_states), repeat=len(lists) + 1):
        chance = weights[path[0]]
        for s, t in itertools.pairwise(path):
            chance *= transition[s, t]
        for s, shown in zip(path, lists, strict=False):
            for action, click in shown:
                chance *= rates[s, action] if click else 1 - rates[s, action]
        after[path[-1]] += chance
    return after / after.sum()


def click_posterior(alpha, beta, looked, rows):
    """Evidence, mean and variance of a click rate with a beta prior, by adaptive integration.

    `rows` are pairs of a position and a click; `looked` is how often each position is looked at.
    """
    from scipy.integrate import quad
    from scipy.stats import beta as beta_law

    def integrand(mu, power):
        chance = 1.0
        for position, click in rows:
            chance *= looked[position] * mu if click else 1 - looked[position] * mu
        return chance * beta_law.pdf(mu, alpha, beta) * mu**power

    edges = (0.0, 1e-3, 0.03, 0.1, 0.3, 0.6, 1.0)
    evidence, first, second = (
        sum(
            quad(integrand, low, high, args=(power,), epsabs=1e-14, epsrel=1e-12, limit=200)[0]
            for low, high in itertools.pairwise(edges)
        )
        for power in range(3)
    )
    mean = first / evidence
    return evidence, mean, second / evidence - mean**2
