"""Large catalogues: matrix completion, and clusters of the completed users as latent states."""
