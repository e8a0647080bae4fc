"""Policies around another policy: exploring, forgetting."""
