"""Containers as processes: pods whose images this machine can stand in for run their commands here, for real.

    images ─► command            sources ─► environment, volumes
                  └───────► execution, probes ─► container ─► pods (what hollow kubelets call)

A process is not a container, and three things make up for it. Mounts lie under a directory of the container's own:
`CONTAINER_SANDBOX_MOUNT_POINT` (the name Kubernetes has for it, where containers are processes of the host), and
paths under them are rewritten in arguments and variables. A pod has an address of its own on loopback, named by
`KAI_LISTEN_HOST`. Security contexts, resource limits and lifecycle hooks are not enforced.
"""
