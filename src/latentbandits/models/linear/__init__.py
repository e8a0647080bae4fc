"""Rewards that share a parameter vector: features times weights."""
