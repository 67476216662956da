"""What clusters are given besides the chart: definitions, a dashboard, alerts."""
