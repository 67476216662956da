"""A real Kubernetes control plane on loopback with hollow nodes: `kai local up|down|status|run`.

Three concerns: the binary (`gotool`, `build`, `controlplane/`), the processes (`site`, `parts`, `process`, `cluster`,
`clusters`) and the nodes (`shapes`, `ledger`, `habits`, `registration`, `pod_life`, `kubelet` and what they use);
`session` joins them with the components that run on the cluster.
"""
