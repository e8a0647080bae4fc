# %% [markdown]
# # Stars
#
# Ratings of one to five stars are not numbers around a mean: they have five values, and often two
# peaks. `CategoricalArms` learns how often each value occurs, and decides by the mean.

# %%
from pathlib import Path

import numpy as np

from latentbandits import Agent, mmTS
from latentbandits.learning import fit

LOG = Path(__file__).parent / "data" / "drinks.csv"

# %% [markdown]
# ## Learn from a CSV file
#
# The log of a cafe: customer, drink, stars. `fit` compares the families of rewards by how probable
# they make ratings of customers who were kept out.

# %%
fitted = fit(str(LOG), user="customer", action="drink", reward="stars", bootstrap=0)
assert fitted.catalogue is not None
drinks = fitted.catalogue.ids
print(type(fitted.model).__name__, "with", fitted.model.n_states, "states")

# %% [markdown]
# ## What each kind of customer likes
#
# The posterior mean of the stars, for every state and drink.

# %%
means, _ = fitted.model.posterior_rewards(fitted.model.parameters(1), None)
for state, row in enumerate(means[0], start=1):
    best = np.argsort(row)[::-1][:2]
    print(f"state {state}:", ", ".join(f"{drinks[i]} {row[i]:.1f}" for i in best))

# %% [markdown]
# ## One customer
#
# Two ratings are enough to know what to offer next.

# %%
agent = Agent(mmTS(fitted.model), seed=0)
for stars in (5, 4):
    offer = [drink == "hot chocolate" for drink in drinks]
    agent.update(agent.decide("ann", eligible=offer), reward=stars)
print("belief:", agent.state_probabilities("ann").round(2))
print("next:", drinks[agent.decide("ann").action])
