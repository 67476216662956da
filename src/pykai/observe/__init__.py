"""Logs, metrics, HTTP pages and terminal tables."""
