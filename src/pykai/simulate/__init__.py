"""Simulation: the components of the product on an in-memory API server in virtual time."""
