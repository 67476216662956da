"""NUMA placement exporter: tells the scheduler, in an annotation, on which NUMA nodes a kubelet really placed a pod.

`placement` decides what to write; `wire` and `grpc` read it from the kubelet's PodResources socket, `cpus` which CPU
belongs to which NUMA node; `exporter.run` is the loop on a node.
"""
