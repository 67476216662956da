"""Addresses of pods: what the cluster is told, and where on this machine that is.

The API server refuses endpoints on loopback, and nothing else can be listened on without rights. So a pod has an
address in 10.128.0.0/9, and what listens there listens on its likeness in 127.0.0.0/8, which is all loopback on Linux.
"""

from __future__ import annotations

import hashlib
import ipaddress

HOST = "127.0.0.1"
"""Where hollow nodes are: this machine."""
_PODS = ipaddress.ip_network("10.128.0.0/9")


def pod_ip(uid: str) -> str:
    """An address in 10.128.0.0/9 that depends on the pod only."""
    high, middle, low = hashlib.sha256(uid.encode()).digest()[:3]
    return f"10.{128 + high % 128}.{middle}.{1 + low % 254}"


def on_this_machine(host: str) -> str:
    """Where to connect to reach `host`: a pod's address moved to loopback, any other host as it is."""
    try:
        is_pod = ipaddress.ip_address(host) in _PODS
    except ValueError:
        return host
    return f"127.{host.partition('.')[2]}" if is_pod else host
