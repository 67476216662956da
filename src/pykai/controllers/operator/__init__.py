"""The operator: Config and SchedulingShard objects in, the deployments of the whole system out.

`desired` is a pure function from what users ask for and what the cluster is like to the objects that should exist;
`controller` reconciles them and reports progress in status conditions.
"""

from __future__ import annotations

from pykai.controllers.operator.components import PodScope, WebhookParts
from pykai.controllers.operator.controller import Operator, OperatorSettings, run
from pykai.controllers.operator.desired import Wanted, desired
from pykai.controllers.operator.installation import (
    Facts,
    Installation,
    Leader,
    OperatorEnvironment,
    Shard,
    read_config,
    read_shard,
)
from pykai.objects.config_kinds import Config

__all__ = [
    "Config",
    "Facts",
    "Installation",
    "Leader",
    "Operator",
    "OperatorEnvironment",
    "OperatorSettings",
    "PodScope",
    "Shard",
    "Wanted",
    "WebhookParts",
    "desired",
    "read_config",
    "read_shard",
    "run",
]
