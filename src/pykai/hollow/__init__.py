"""Hollow kubelets: nodes that exist only as objects; their pods are admitted, run and end by the clock.

`kai local` registers such nodes with a real API server, `kai simulate` with the in-memory one. The ledger admits or
rejects every bound pod independently of the scheduler, as a kubelet does.
"""
