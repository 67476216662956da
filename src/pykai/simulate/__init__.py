"""Simulation: the real components on an in-memory API server in virtual time."""
