"""The documentation; `docs.generate` makes the parts that come from the code."""
