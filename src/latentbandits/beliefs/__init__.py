"""What a session's history says about (latent state, parameters): pure functions on arrays."""
