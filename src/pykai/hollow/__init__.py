"""Hollow kubelets: nodes that exist only as objects; their pods are admitted, run and end by the clock.

`kai local` registers such nodes with a real API server, `kai simulate` with the in-memory one; both play pods by this
package, and its ledger has the final say on every bound pod, whatever the scheduler thought.
"""
