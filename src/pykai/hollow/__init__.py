"""Hollow kubelets: nodes that exist only as objects; timers start and end their pods.

`kai local` registers such nodes with a real API server, `kai simulate` with the in-memory one. The ledger admits or
rejects every bound pod independently of the scheduler, as a kubelet does.
"""
