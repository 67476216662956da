"""The parts of a control plane and the flags each is started with, as one table.

The flags trade durability and audit for speed, which is right for a cluster that lives an hour: no fsync, no leader
election, client limits lifted. Hollow kubelets renew their leases seldom, hence the long grace period; their nodes are
ready when they are made, so the server is told not to taint new nodes until somebody has looked at them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pykai.hollow.addresses import HOST
from pykai.local.site import Site

NODE_GRACE_SECONDS: Final = 120
_BACKEND_BYTES: Final = 4 * 1024**3


def _etcd(site: Site) -> dict[str, str | int]:
    peer = f"http://{HOST}:{site.ports.etcd_peer}"
    return {
        "name": "default",
        "data-dir": str(site.directory / "etcd"),
        "listen-client-urls": site.etcd_url,
        "advertise-client-urls": site.etcd_url,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
        "unsafe-no-fsync": "true",
        "log-level": "warn",
        "quota-backend-bytes": _BACKEND_BYTES,
    }


def _apiserver(site: Site) -> dict[str, str | int]:
    key = str(site.service_account_key)
    return {
        "etcd-servers": site.etcd_url,
        "bind-address": HOST,
        "advertise-address": HOST,
        "secure-port": site.ports.api,
        "cert-dir": str(site.pki),
        "endpoint-reconciler-type": "none",
        "service-cluster-ip-range": "10.96.0.0/16",
        "authorization-mode": "RBAC",
        "disable-admission-plugins": "TaintNodesByCondition",
        "token-auth-file": str(site.tokens),
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": key,
        "service-account-signing-key-file": key,
        "kubelet-preferred-address-types": "InternalIP",
        # No kube-proxy makes Services reachable here: the server goes to a ready pod itself, through the tunnel.
        "enable-aggregator-routing": "true",
        "egress-selector-config-file": str(site.egress),
        "allow-privileged": "true",
        "profiling": "false",
        "max-requests-inflight": 3000,
        "max-mutating-requests-inflight": 1000,
    }


def _controller_manager(site: Site) -> dict[str, str | int]:
    return {
        "kubeconfig": str(site.kubeconfig),
        "leader-elect": "false",
        "secure-port": 0,
        "service-account-private-key-file": str(site.service_account_key),
        "root-ca-file": str(site.certificate),
        "node-monitor-grace-period": f"{NODE_GRACE_SECONDS}s",
        "concurrent-job-syncs": 20,
        "kube-api-qps": 2000,
        "kube-api-burst": 4000,
    }


def _scheduler(site: Site) -> dict[str, str | int]:
    return {
        "kubeconfig": str(site.kubeconfig),
        "leader-elect": "false",
        "secure-port": 0,
        "kube-api-qps": 2000,
        "kube-api-burst": 4000,
    }


ETCD: Final = "etcd"
APISERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"

FLAGS: Final[Mapping[str, Callable[[Site], dict[str, str | int]]]] = {
    ETCD: _etcd,
    APISERVER: _apiserver,
    CONTROLLER_MANAGER: _controller_manager,
    SCHEDULER: _scheduler,
}


def arguments(part: str, site: Site) -> list[str]:
    """What follows the binary on the command line of a part."""
    return [part, *(f"--{flag}={value}" for flag, value in FLAGS[part](site).items())]
