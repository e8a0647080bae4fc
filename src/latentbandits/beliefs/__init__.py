"""Beliefs about (latent state, parameters) given a session's history: pure functions on arrays."""
