"""Image references. All components are one image; reservation and scaling pods have one each, built from the same file.

Charts and Configs written for KAI carry the names of its images, and the schema of Config fills them in. They all stand
for ours: whoever wants another image gives it any other name.
"""

from __future__ import annotations

from typing import Final

from pykai.controllers.operator.installation import Site
from pykai.objects.config_kinds import Image

RESERVATION: Final = "resource-reservation"
SCALING_POD: Final = "scaling-pod"
COMPONENTS: Final = frozenset(
    {
        "admission",
        "binder",
        "crd-upgrader",
        "nodescaleadjuster",
        "numa-placement-exporter",
        "operator",
        "podgroupcontroller",
        "podgrouper",
        "queuecontroller",
        "scheduler",
    }
)
STANDS_FOR: Final = {"resourcereservation": RESERVATION, "scalingpod": SCALING_POD}


def reference(image: Image, site: Site) -> str:
    """`repository/name:tag`, with the operator's own parts where the image does not say."""
    name = site.image if image.name in COMPONENTS else STANDS_FOR.get(image.name, image.name)
    return f"{image.repository or site.registry}/{name}:{image.tag or site.tag}"
