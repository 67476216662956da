"""Logs, metrics and tables a person reads."""
