"""Memory: watch events -> objects -> columns -> Snapshot."""
