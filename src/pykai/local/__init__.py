"""A real Kubernetes control plane on loopback with hollow nodes, for `kai local`.

`build` and `controlplane/` provide the binary; `clusters`, `control_plane` and `process` run it; `kubelet` runs the
hollow nodes; `pod_runtime` and `containers` run containers as processes; `operators` builds and runs operators of other
projects. `cluster_session` joins them with the components on the cluster.
"""
