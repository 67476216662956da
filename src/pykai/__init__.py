"""pykai: a Kubernetes scheduler for AI clusters, API-compatible with KAI Scheduler."""

__version__ = "0.2.0"
