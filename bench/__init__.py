"""Benchmarks: scheduling cycles of pykai beside KAI's figures for the same files. `python -m bench.run --help`."""
