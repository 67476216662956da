"""Grouping rules without I/O: the table of kinds (`workload_kinds`), and a module for the rules of each family."""
