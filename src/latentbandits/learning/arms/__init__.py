"""Mixtures of arms for every conjugate reward family, by variational Bayes."""
