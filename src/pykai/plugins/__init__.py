"""Policies; each implements one or two extension points of engine/plugin_api.py."""
