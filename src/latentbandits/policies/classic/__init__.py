"""Policies that know no latent states: UCB1, LinUCB, EXP4, popularity, uniform."""
