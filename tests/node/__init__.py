"""Tests on a real node: kubelet, containerd and runc instead of hollow kubelets. `make test-node` runs them."""
