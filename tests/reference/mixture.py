"""A mixture of arms the slow way: one user, one reward at a time."""

import math
from itertools import permutations, product

import numpy as np
from scipy.special import digamma


def bernoulli_step(log, alpha, beta, w, kappa, m):
    """One step of variational Bayes as LEARNING.md states it, one reward at a time; and the ELBO
    of the parameters before it.
    """
    n_states, n_actions = alpha.shape
    taken = []
    elbo = 0.0
    for user in range(log.n_users):
        weights = []
        for s in range(n_states):
            value = digamma(w[s]) - digamma(sum(w))
            for i in range(log.starts[user], log.starts[user + 1]):
                a = log.actions[i]
                hit = alpha[s, a] if log.rewards[i] == 1 else beta[s, a]
                value += digamma(hit) - digamma(alpha[s, a] + beta[s, a])
            weights.append(value)
        top = max(weights)
        total = top + math.log(sum(math.exp(value - top) for value in weights))
        elbo += total
        taken.append([math.exp(value - total) for value in weights])
    for s in range(n_states):
        for a in range(n_actions):
            prior = kappa * m[a], kappa * (1 - m[a])
            elbo -= _beta_divergence((alpha[s, a], beta[s, a]), prior)
    elbo -= _dirichlet_divergence(w, [1.0] * n_states)
    new_alpha, new_beta = np.empty_like(alpha), np.empty_like(beta)
    new_alpha[:], new_beta[:] = kappa * np.asarray(m), kappa * (1 - np.asarray(m))
    for i in range(log.n_events):
        for s in range(n_states):
            target = new_alpha if log.rewards[i] == 1 else new_beta
            target[s, log.actions[i]] += taken[log.users[i]][s]
    return new_alpha, new_beta, [1 + sum(row[s] for row in taken) for s in range(n_states)], elbo


def log_evidence(log, model, n_states):
    """Log p(rewards) of a mixture by going through every assignment of users to states.

    Given the assignment, pi integrates to a Dirichlet-multinomial and the rewards of a state's
    users are one long session of `model`, which has one state: the pooled prior.
    """
    terms = []
    for states in product(range(n_states), repeat=log.n_users):
        value = math.lgamma(n_states) - math.lgamma(n_states + log.n_users)
        for s in range(n_states):
            value += math.lgamma(states.count(s) + 1)
            parameters = model.parameters(1)
            for i in range(log.n_events):
                if states[log.users[i]] == s:
                    event = log.actions[i : i + 1], log.rewards[i : i + 1]
                    density, parameters = model.condition(parameters, None, *event)
                    value += float(density[0, 0])
        terms.append(value)
    top = max(terms)
    return top + math.log(sum(math.exp(term - top) for term in terms))


def marginal_log_likelihood(log, log_density, shares):
    """Sum over users of log sum_s shares[s] exp(sum of log_density[s, event])."""
    total = 0.0
    for user in range(log.n_users):
        events = slice(log.starts[user], log.starts[user + 1])
        pairs = zip(shares, log_density, strict=True)
        total += math.log(sum(share * math.exp(row[events].sum()) for share, row in pairs))
    return total


def _beta_divergence(q, p):
    total = _log_beta(*p) - _log_beta(*q)
    for mine, other in zip(q, p, strict=True):
        total += (mine - other) * (digamma(mine) - digamma(sum(q)))
    return total


def _dirichlet_divergence(q, p):
    total = math.lgamma(sum(q)) - math.lgamma(sum(p))
    for mine, other in zip(q, p, strict=True):
        total += math.lgamma(other) - math.lgamma(mine)
        total += (mine - other) * (digamma(mine) - digamma(sum(q)))
    return total


def _log_beta(a, b):
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def moments(log):
    """Mean products of two and three different rounds of a user, by going through all of them.

    Each user's pairs and triples have the same weight in all; an entry is divided by how often
    its actions come together.
    """
    k = log.n_actions
    paid = np.zeros(k), np.zeros((k, k)), np.zeros((k, k, k))
    played = np.zeros(k), np.zeros((k, k)), np.zeros((k, k, k))
    for user in range(log.n_users):
        events = list(range(log.starts[user], log.starts[user + 1]))
        for size in (1, 2, 3):
            chosen = list(permutations(events, size))
            for some in chosen:
                entry = tuple(log.actions[i] for i in some)
                reward = math.prod(log.rewards[i] for i in some)
                paid[size - 1][entry] += reward / len(chosen)
                played[size - 1][entry] += 1 / len(chosen)
    return tuple(a / b for a, b in zip(paid, played, strict=True))
