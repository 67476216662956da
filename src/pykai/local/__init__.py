"""A real Kubernetes control plane on loopback with hollow nodes: `kai local up|down|status|run`.

Three concerns, one file or two each: the binary (`gotool`, `build`), the processes (`site`, `parts`, `process`,
`cluster`, `clusters`) and the nodes (`shapes`, `devices`, `podstatus`, `kubelet`, `kubelet_server`); `session` joins
them with the components that run on the cluster.
"""
