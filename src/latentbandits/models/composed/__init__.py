"""Models made of other models or of functions."""
