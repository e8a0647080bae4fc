"""Policies on a model of latent states: the m- and mm-policies."""
