"""Hollow kubelets: simulated nodes, whose pods are started and ended by timers.

`kai local` registers such nodes with a real API server, `kai simulate` with the in-memory one. Like a kubelet, the
ledger admits or rejects every bound pod independently of the scheduler.
"""
