"""Virtual time around the real engine: hollow kubelets, workloads, timeline, report."""
