"""Composition roots: the kai command and its components."""
