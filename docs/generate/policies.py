"""The scheduler's actions and plugins, and the plugins of the binder, as sections of reference/configuration.md."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from docs.generate import markdown
from pykai.controllers.operator import component_flags, shards
from pykai.controllers.operator.component_flags import PolicyRow
from pykai.controllers.operator.installation import Facts, read_config, read_shard
from pykai.engine import decide
from pykai.plugins import registry

WHAT_ACTIONS_DO = {
    "allocate": "Places pending gangs on free resources, in the order of service.",
    "consolidation": "Moves running pods so that a pending gang fits. Off if `placementStrategy` spreads.",
    "reclaim": "Evicts pods of queues above their share for queues below theirs.",
    "preempt": "Evicts lower-priority pods for higher-priority gangs of the same queue.",
    "stalegangeviction": "Evicts gangs that have run below their minimum for too long.",
}
WITHOUT_CODE = {
    "snapshot": "The page `/get-snapshot` of the scheduler.",
    "reflectjoborder": "The page `/get-job-order` of the scheduler.",
}
SUMMARIES = {
    "predicates": "Node filters: conditions, taints, affinity, ports, volumes, quotas.",
    "proportion": "Fair shares, limits and quotas; the order of queues; when reclaim is fair.",
    "dynamicresources": "Allocates devices for resource claims (DRA).",
    "disruptionbudgets": "Limits the evictions per PodDisruptionBudget.",
    "kubeflow": "Masters and launchers of Kubeflow jobs first.",
    "ray": "The head of a Ray cluster first.",
    "subgrouporder": "Sub-groups below their threshold first, then the lowest ratio of placed members to threshold.",
    "taskorder": "Pods with a larger label `kai.scheduler/task-priority` first; pods without the label last.",
    "nodeavailability": "Nodes on which the pod can start at once first.",
    "gpusharingorder": "For GPU shares: nodes with a shared GPU that can take the share first.",
    "gpupack": "For GPU shares: the fullest device first.",
    "gpuspread": "For GPU shares: the emptiest device first.",
    "nominatednode": "The node in `status.nominatedNodeName` before all others.",
    "nodeplacement": "Binpack: the node with the least free GPUs (or CPU) first. Spread: the one with the most.",
    "podaffinity": "Scores nodes by preferred pod affinity and anti-affinity.",
    "preferences": "Scores nodes by preferred node affinity, `PreferNoSchedule` taints and `ScheduleAnyway` spread.",
    "imagelocality": "Scores nodes that have the pod's images.",
    "minruntime": "Protects the minimum of workloads that have not run for their minimum run time.",
    "topology": "Places gangs within required domains, and prefers the tightest of the preferred ones.",
    "sg-nodelocalgreedy": "Generator: searches victims node by node.",
    "sg-multinodegang": "Generator: searches victims on the fewest nodes that cover the request, then on more.",
    "numa": "Filters nodes whose NUMA zones cannot hold the pod under their kubelet's topology manager policy.",
}
"""For users; without an entry, the first sentence of the docstring of the class."""
BINDER = {
    "volumebinding": "Binds or provisions the volumes of the pod.",
    "dynamicresources": "Writes allocations into resource claims.",
    "gpusharing": "Passes the devices of a GPU share to its container, by ConfigMaps.",
    "nvfractions": "Passes the devices and memory of a GPU share to software on the node, by annotations.",
    "hamicore": "Sets the memory limit of a GPU share for HAMi-core.",
}
ARGUMENTS = {
    "proportion": {
        "kValue": "how strongly past use lowers a queue's share (1)",
        "reclaimerSaturationMultiplier": (
            "factor on the reclaimer's use per fair share when it is compared with the victim's (1)"
        ),
        "relcaimerSaturationMultiplier": "KAI's spelling; goes before the other",
        "queuePriorityInQuotaReclaim": (
            "`true`: a queue within its quota reclaims from any queue of lower priority (false)"
        ),
    },
    "backgroundpods": {"labelSelector": "selects the background pods (`kai.scheduler/background=true`)"},
    "gpujoborder": {"mode": "`prefer-larger` or `prefer-smaller` (prefer-larger)"},
    "nodeplacement": {"gpu": "`binpack` or `spread` (binpack)", "cpu": "the same for pods without GPUs (binpack)"},
    "minruntime": {
        "defaultPreemptMinRuntime": "minimum run time before preemption (0s)",
        "defaultReclaimMinRuntime": "minimum run time before reclaim (0s)",
        "reclaimResolveMethod": (
            "the queue whose minimum counts: `lca`, below the lowest common ancestor, or `queue`, the victim's (lca)"
        ),
    },
    "disruptionbudgets": {
        "mode": "`ignore`, `prefer` victims that break no budget, or `respect` budgets always (ignore); "
        "`spec.disruptionBudgets` of a SchedulingShard sets it"
    },
    "numa": {
        "ignoreList": "comma-separated names of resources to ignore",
        "reconstructAvailable": "derive free zones from placed pods instead of node reports (true)",
    },
}


def sections() -> str:
    """Actions and plugins."""
    return "\n".join([
        "## Actions\n",
        "`spec.actions.NAME.enabled` and `.priority` of a SchedulingShard enable them and set their order.\n",
        markdown.table(("action", "default", "meaning"), _actions()),
        "## Plugins of the scheduler\n",
        "`spec.plugins.NAME.enabled`, `.priority` and `.arguments` of a SchedulingShard. Higher priority goes first. "
        "With\n`placementStrategy.gpu: spread`, `gpuspread` is on, and `gpupack` and `gpusharingorder` are off. Own "
        "plugins: [plugins.md](../plugins.md).\n",
        markdown.table(("plugin", "default", "meaning", "arguments (default)"), _plugins()),
        "## Plugins of the binder\n",
        "`spec.binder.plugins.NAME` of the Config. Which of `gpusharing`, `nvfractions` and `hamicore` are on follows "
        "from the\n[GPU sharing mode](../concepts/gpu-sharing.md#modes) unless they say so themselves.\n",
        markdown.table(("plugin", "default", "meaning", "arguments (default)"), _binder()),
    ])  # fmt: skip


def _actions() -> list[tuple[str, str, str]]:
    rows = shards.actions(read_shard("default", {}).spec)
    return [(f"`{name}`", _default(rows.get(name)), WHAT_ACTIONS_DO[name]) for name in decide.ACTIONS]


def _plugins() -> list[tuple[str, str, str, str]]:
    rows = shards.plugins(read_shard("default", {}).spec)
    return [(f"`{name}`", _default(rows.get(name)), meaning(name), _arguments(name)) for name in registry.PLUGINS]


def _default(row: PolicyRow | None) -> str:
    """Whether the operator turns it on, and its place in the order."""
    return f"{'on' if row.enabled else 'off'}, {row.priority}" if row else "off"


def _doc(thing: object) -> str:
    return inspect.getdoc(thing) or ""


def meaning(name: str) -> str:
    """What a plugin does, in a sentence."""
    known = WITHOUT_CODE.get(name) or SUMMARIES.get(name)
    return known or _first(" ".join(_doc(type(made)) for made in registry.make(name)))


def _first(text: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]


def _arguments(name: str) -> str:
    return "; ".join(f"`{argument}`: {text}" for argument, text in ARGUMENTS.get(name, {}).items())


def arguments_read() -> set[str]:
    """The names of arguments that the plugins read, found in their source."""
    text = "".join(path.read_text() for path in Path(registry.__file__).parent.glob("*.py"))
    direct = re.findall(r'arguments\.get\("(\w+)"', text) + re.findall(r'arguments,\s+"(\w+)"', text)
    (both,) = re.findall(r'arguments\.get\(key, "binpack"\) for key in \("(\w+)", "(\w+)"\)', text)
    return {*direct, *both}


def _binder() -> list[tuple[str, str, str, str]]:
    rows = []
    for name, row in component_flags.binder_plugins(read_config({}), Facts()).items():
        given = "; ".join(f"`{key}` ({value})" for key, value in row["arguments"].items())
        rows.append((f"`{name}`", f"{'on' if row['enabled'] else 'off'}, {row['priority']}", BINDER[name], given))
    return rows
