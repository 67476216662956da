"""The dashboard: web pages on the decided state of a live cluster, a snapshot file or a simulation."""
