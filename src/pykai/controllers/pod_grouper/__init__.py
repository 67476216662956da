"""The pod grouper on a live cluster: pods in, PodGroups and annotated pods out.

The rules are `pykai.controllers.grouping`; here they are asked about watched pods and their answers are written.
`run(api, watches, settings, ready)` works until it is cancelled.
"""

from pykai.controllers.pod_grouper.grouper import PodGrouper, PodGrouperSettings, run

__all__ = ["PodGrouper", "PodGrouperSettings", "run"]
