"""Learners for large catalogues: matrix completion, then clustering of users into latent states."""
