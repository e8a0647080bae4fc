"""Densities, samplers, quadrature and array operations that the models share."""
