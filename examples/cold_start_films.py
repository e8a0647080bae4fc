# %% [markdown]
# # Films for a new user
#
# Many items: a mean for every kind of user and every film would be too much to learn. The ratings
# are completed as a matrix, films become vectors, and kinds of users are clusters of user vectors.
# A new user starts with the average of all users and is known after a few ratings.
#
# The ratings are generated. With MovieLens, `latentbandits reproduce movielens` does the same.

# %%
import numpy as np

from latentbandits import LinTS, mmGreedy, mmTS
from latentbandits.learning import fit
from latentbandits.learning.generate import generate_ratings

# %% [markdown]
# ## Ratings of 250 users for 80 films
#
# A user has rated about a third of them.

# %%
RATINGS = generate_ratings(250, 80, 3, density=0.35, separation=1.5, seed=0)

# %% [markdown]
# ## Learn
#
# With more than 50 actions `fit` completes the matrix. The catalogue has a vector for each film.


# %%
def play(policy, films, rng, n_users=300, n_rounds=20):
    """Return the mean true rating of new users, round by round; each round offers ten films."""
    truth = RATINGS.model
    state = rng.choice(truth.n_states, size=n_users, p=truth.state_prior)
    taste = [rng.multivariate_normal(truth.weights[s], truth.covariances[s]) for s in state]
    belief, earned = policy.init(n_users), np.empty(n_rounds)
    for t in range(n_rounds):
        offered = np.stack([rng.choice(len(films), 10, replace=False) for _ in range(n_users)])
        decision = policy.decide(belief, films[offered], rng)
        chosen = offered[np.arange(n_users), decision.action]
        mean = np.einsum("ud,ud->u", np.stack(taste), RATINGS.action_vectors[chosen])
        earned[t] = mean.mean()
        reward = mean + truth.noise * rng.standard_normal(n_users)
        belief = policy.update(belief, films[offered], decision, reward)
    return earned


# %%
log = {"user": RATINGS.users, "action": RATINGS.actions, "reward": RATINGS.rewards}
fitted = fit(log, bootstrap=0, states=3, rank=4)
assert fitted.catalogue is not None
assert fitted.catalogue.features is not None
order = [fitted.catalogue.ids.index(str(a)) for a in range(80)]
films = fitted.catalogue.features[order]

# %% [markdown]
# ## Play new users
#
# `LinTS` has the same film vectors and learns each user from scratch. The others start from
# the kinds of users.

# %%
policies = {
    "LinTS": LinTS(films.shape[1], noise=fitted.model.noise),
    "mmTS": mmTS(fitted.model),
    "mmGreedy": mmGreedy(fitted.model),
}
for name, policy in policies.items():
    earned = play(policy, films, np.random.default_rng(1))
    first, last = earned[:5].mean(), earned[15:].mean()
    print(f"{name:9} rounds 1-5: {first:.2f}   rounds 16-20: {last:.2f}")
