"""Every path of states, one by one: the oracle of the filter for a state that moves."""

import itertools
import math

import numpy as np


def enumerate_paths(model, transition, actions, rewards, contexts=None):
    """P(s) of the round after `rewards`, P(rewards), and E[mu | s] there, `(S, K)`.

    For one session. A path explains the rewards of each of its states by that state's own
    parameters, so its evidence is the product over states of the evidence of their rewards.
    """
    n_states = model.n_states
    prior = np.exp(model.log_state_prior[0])
    horizon = len(rewards)
    weight = np.zeros(n_states)
    total = None
    evidence = {}
    for path in itertools.product(range(n_states), repeat=horizon + 1):
        chance = prior[path[0]] * math.prod(transition[a, b] for a, b in itertools.pairwise(path))
        last = path[-1]
        for s in range(n_states):
            rounds = tuple(t for t in range(horizon) if path[t] == s)
            if (s, rounds) not in evidence:
                evidence[s, rounds] = _evidence(model, s, rounds, actions, rewards, contexts)
            chance *= math.exp(evidence[s, rounds][0])
        mean = evidence[last, tuple(t for t in range(horizon) if path[t] == last)][1]
        if total is None:
            total = np.zeros((n_states, len(mean)))
        weight[last] += chance
        total[last] += chance * mean
    return weight / weight.sum(), weight.sum(), total / weight[:, None]


def _evidence(model, s, rounds, actions, rewards, contexts):
    """Log evidence of these rounds in state s, and the posterior mean rewards."""
    parameters, log_evidence = model.parameters(1), 0.0
    for t in rounds:
        context = None if contexts is None else contexts[t][None]
        density, parameters = model.condition(
            parameters, context, np.array([actions[t]]), np.array([rewards[t]])
        )
        log_evidence += density[0, s]
    context = None if contexts is None else contexts[-1][None]
    return log_evidence, model.posterior_rewards(parameters, context)[0][0, s]
