"""Policies; each implements one or two extension points of engine/points.py."""
