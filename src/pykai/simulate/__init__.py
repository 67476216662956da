"""A cluster in memory and in virtual time around the real cache and engine: only the two ends differ from live."""
