# %% [markdown]
# # Boosted trees for each kind of user
#
# The reward model of a latent state can be any function. Here it is a gradient-boosted model.
#
# Offline, users of a log are split into states: fit one boosted model per state, give every user
# to the model that predicts them best, and repeat. Online, the models become a `FunctionModel`,
# and the policy mTS finds out which of them a new user follows.

# %%
import numpy as np
from sklearn.ensemble import GradientBoostingRegressor

from latentbandits import FunctionModel, mTS

N_STATES, N_FEATURES, N_ACTIONS, NOISE = 3, 4, 8, 0.3

# %% [markdown]
# ## The truth, which the learner does not see
#
# Three kinds of users like different things about an item with four features. The log has users
# who were shown items at random.


# %%
def taste(state, x):
    """Return the mean reward of items `x`, (..., n_features), for users of a state."""
    curves = (
        lambda x: np.sin(3 * x[..., 0]) + x[..., 1] ** 2,
        lambda x: np.abs(x[..., 2]) - np.sin(3 * x[..., 0]),
        lambda x: x[..., 3] * (x[..., 1] > 0) + 0.5,
    )
    return np.choose(state, [curve(x) for curve in curves])


def make_log(rng, n_users=90, n_rounds=40):
    """Users (n,), features (n, rounds, d) of what they were shown, at random, and rewards."""
    state = rng.integers(N_STATES, size=n_users)
    x = rng.uniform(-1, 1, (n_users, n_rounds, N_FEATURES))
    return x, taste(state[:, None], x) + NOISE * rng.standard_normal((n_users, n_rounds))


# %% [markdown]
# ## Learn the states


# %%
def fit(x, rewards):
    model = GradientBoostingRegressor(n_estimators=40, max_depth=3, subsample=0.5, random_state=0)
    return model.fit(x.reshape(-1, N_FEATURES), rewards.ravel())


def learn_states(x, rewards, rng, n_turns=5, n_starts=2):
    """Return the boosted model of every state: the start with the smallest error wins."""
    starts = [_learn_from(x, rewards, rng, n_turns) for _ in range(n_starts)]
    return min(starts, key=lambda result: result[0])[1]


def _learn_from(x, rewards, rng, n_turns):
    """Return the mean squared error of the users' best state, and the models."""
    member = rng.integers(N_STATES, size=len(x))
    error, models = np.inf, []
    for _ in range(n_turns):
        models = [fit(x[member == s], rewards[member == s]) for s in range(N_STATES)]
        errors = np.stack([_errors(model, x, rewards) for model in models])
        error, member = errors.min(axis=0).mean(), errors.argmin(axis=0)
        if np.bincount(member, minlength=N_STATES).min() == 0:
            break
    return error, models


def _errors(model, x, rewards):
    predicted = model.predict(x.reshape(-1, N_FEATURES)).reshape(rewards.shape)
    return np.square(rewards - predicted).mean(axis=1)


# %% [markdown]
# ## Use them as a model of latent states
#
# `mean(context, action)` returns an array `(n_sessions, n_states, m)` for `m` actions.


# %%
def as_function_model(models):
    """Return the boosted models as the states of one model."""

    def mean(context, action):
        x = np.take_along_axis(context, action[:, :, None], axis=1)
        flat = x.reshape(-1, N_FEATURES)
        return np.stack([m.predict(flat).reshape(action.shape) for m in models], axis=1)

    return FunctionModel(
        mean, noise=NOISE, n_states=len(models), context_shape=(N_ACTIONS, N_FEATURES)
    )


# %% [markdown]
# ## Play new users


# %%
def play(policy, rng, n_users=200, n_rounds=30):
    """Return the mean reward of the first five and of the last ten rounds of new users."""
    state, users = rng.integers(N_STATES, size=n_users), np.arange(n_users)
    belief, earned = policy.init(n_users), np.empty((n_rounds, n_users))
    for t in range(n_rounds):
        x = rng.uniform(-1, 1, (n_users, N_ACTIONS, N_FEATURES))
        decision = policy.decide(belief, x, rng)
        earned[t] = taste(state, x[users, decision.action])
        reward = earned[t] + NOISE * rng.standard_normal(n_users)
        belief = policy.update(belief, x, decision, reward)
    return earned[:5].mean(), earned[-10:].mean()


def main(seed=0, **sizes):
    rng = np.random.default_rng(seed)
    x, rewards = make_log(rng, **sizes)
    policies = {
        "one boosted model for all": mTS(as_function_model([fit(x, rewards)])),
        "one per latent state, mTS": mTS(as_function_model(learn_states(x, rewards, rng))),
    }
    return {name: play(policy, np.random.default_rng(1)) for name, policy in policies.items()}


# %%
if __name__ == "__main__":
    for name, (first, last) in main().items():
        print(f"{name:28} rounds 1-5: {first:.2f}   last 10: {last:.2f}")
