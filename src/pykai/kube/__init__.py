"""API client, informers, workqueue, events and leases. No other package talks to an API server."""
