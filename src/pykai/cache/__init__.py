"""Watch events -> objects -> columns -> Snapshot."""
