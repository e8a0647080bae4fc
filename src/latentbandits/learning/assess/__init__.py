"""Assess a learned model: held-out score, replay, verdict, report."""
