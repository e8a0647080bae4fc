# %% [markdown]
# # Users who change
#
# Two people share one account, or a mood changes: the latent state of a session moves. A model
# that knows how often, `Markov`, follows it. One that does not keeps believing in the past.

# %%
import numpy as np

from latentbandits import GaussianArms, Markov, mTS, simulate
from latentbandits.environments import Switching, Synthetic
from latentbandits.learning.transitions import UserSequence, fit_transition

# %% [markdown]
# ## Learn how often users change
#
# From logged sequences, with the rewards of each state known: here 40 users of 50 rounds, who
# change with probability 0.05.

# %%
MODEL = GaussianArms([[0.9, 0.1], [0.1, 0.9]], noise=0.3)


def sequences(n_users: int = 40, n_rounds: int = 50, seed: int = 0) -> list[UserSequence]:
    """Return the actions and rewards of users who change."""
    rng = np.random.default_rng(seed)
    collected = []
    for _ in range(n_users):
        state = np.cumsum(rng.random(n_rounds) < 0.05) % 2
        action = rng.integers(2, size=n_rounds)
        reward = MODEL.means[state, action] + 0.3 * rng.standard_normal(n_rounds)
        collected.append(UserSequence(action, reward))
    return collected


# %%
learned = fit_transition(MODEL, sequences()).transition
print("stays with probability", learned.diagonal().round(2))

# %% [markdown]
# ## What it is worth
#
# The paper's synthetic problem with a state that switches every 50 rounds on average.

# %%
players = {
    "takes the state as fixed": mTS,
    "follows it": lambda model: mTS(Markov.switching(model, 0.02)),
}
problem = Switching(Synthetic(model_noise=0.05), 0.02, "markov")
results = simulate(players, problem, n_runs=100, horizon=300, seed=0)
for name, result in results.items():
    print(f"{name:25} regret {result.regret}")
