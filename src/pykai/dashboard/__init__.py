"""The dashboard: pages about a decided state of a cluster, live, of a snapshot file or of a simulation."""
