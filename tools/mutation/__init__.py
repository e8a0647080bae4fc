"""Mutation testing: small changes of the source that a test should notice."""
