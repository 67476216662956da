"""A real Kubernetes control plane on loopback with hollow nodes: `kai local up|down|status|run`.

Four concerns: the binary (`gotool`, `build`, `controlplane/`), the processes (`site`, `parts`, `process`, `tunnel`,
`cluster`, `clusters`), the nodes (`shapes`, `ledger`, `settings`, `registration`, `pod_life`, `kubelet` and what they
use) and the containers that are more than pretence (`containers/`); `session` joins them with the components that run
on the cluster.
"""
