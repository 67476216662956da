"""The only package that talks to an API server."""
