"""Grouping rules without I/O: the table of kinds (`kinds`), and a module for the rules of each family."""
