"""Explanations computed by the engine: why a workload is pending, what would start it, what a change would do."""
