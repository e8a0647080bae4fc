# %% [markdown]
# # Clicks
#
# Learn from a log of impressions and clicks, and find out what the model is worth for new users.
# Rewards are 0 or 1, so the model is `BernoulliArms`: a click rate for every kind of user and
# every item.

# %%
import numpy as np

from latentbandits import BernoulliArms, simulate
from latentbandits.environments import UsersOfModel
from latentbandits.learning import fit
from latentbandits.policies.registry import Inputs, build

# %% [markdown]
# ## The truth
#
# Two kinds of visitors, six items, click rates of a few percent to a third. The learner sees only
# the log: 800 visitors with 30 random impressions each.

# %%
RATES = np.array(
    [
        [0.35, 0.20, 0.05, 0.05, 0.10, 0.02],
        [0.05, 0.05, 0.30, 0.25, 0.10, 0.02],
    ]
)


def make_log(n_users: int = 800, n_rounds: int = 30, seed: int = 0) -> dict[str, np.ndarray]:
    """Return a table with a row for each impression."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=n_users)
    user = np.repeat(np.arange(n_users), n_rounds)
    item = rng.integers(6, size=len(user))
    click = rng.random(len(user)) < RATES[kind[user], item]
    return {"user": user, "action": item, "reward": click}


# %% [markdown]
# ## Learn
#
# `fit` sees that all rewards are 0 or 1. It finds the number of kinds by itself and recommends a
# policy.

# %%
fitted = fit(make_log(), bootstrap=0)
policy = fitted.report["judgement"]["recommended_policy"]
print(type(fitted.model).__name__, "with", fitted.model.n_states, "states; use", policy)

# %% [markdown]
# ## What it is worth
#
# New visitors follow the true rates. `TS` learns each of them from scratch.

# %%
truth = BernoulliArms.from_means(RATES, spread=1e-4)
players = {
    "popularity": build("popularity", Inputs(fitted.model)),
    "TS": build("TS", Inputs(fitted.model)),
    policy: build(policy, Inputs(fitted.model)),
}
results = simulate(players, UsersOfModel(truth), n_runs=500, horizon=30, seed=1)
for name, result in results.items():
    print(f"{name:12} click rate {result.reward}")
