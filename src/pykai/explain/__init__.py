"""Answers of the engine that decides: why a workload waits, what would start it, what a change would do."""
