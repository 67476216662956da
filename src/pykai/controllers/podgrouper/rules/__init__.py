"""Grouping rules without I/O: one row per kind in `kinds`, the rules of each family in a module."""
