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
    "allocate": "Gives waiting gangs what is free, queue by queue.",
    "consolidation": "Moves running pods together so that a waiting gang fits. Off where `placementStrategy` spreads.",
    "reclaim": "Takes back a queue's share from queues above theirs.",
    "preempt": "Within a queue, higher priority takes the place of lower.",
    "stalegangeviction": "Evicts what is left of gangs that have run below their minimum for too long.",
}
WITHOUT_CODE = {
    "snapshot": "The page `/get-snapshot` of the scheduler.",
    "reflectjoborder": "The page `/get-job-order` of the scheduler.",
}
SUMMARIES = {
    "predicates": "What must hold before a pod goes to a node: conditions, taints, affinity, ports, volumes, quotas.",
    "proportion": "Fair shares of queues: who is next, who may take from whom.",
    "dynamicresources": "Devices by resource claims (DRA).",
    "disruptionbudgets": "Victims per PodDisruptionBudget are at most what it allows.",
    "numa": "Only nodes whose NUMA zones can hold the pod as their kubelet's topology manager will insist.",
}
"""Where the docstring of the class talks to programmers."""
BINDER = {
    "volumebinding": "Binds volume claims that wait for a node.",
    "dynamicresources": "Writes what was chosen into resource claims.",
    "gpusharing": "Reserves shared GPUs and tells containers which they are.",
    "nvfractions": "Tells the software on the nodes which part of which GPU a container gets, by annotations.",
    "hamicore": "Tells containers how much memory of a shared GPU they may use, for HAMi-core.",
}
ARGUMENTS = {
    "proportion": {
        "kValue": "how strongly past use lowers a queue's share (1)",
        "reclaimerSaturationMultiplier": "how much richer than its victims a reclaimer may become (1)",
        "relcaimerSaturationMultiplier": "the same, as KAI spells it; goes before the other",
        "queuePriorityInQuotaReclaim": (
            "`true`: a queue within its quota reclaims from any queue of lower priority (false)"
        ),
    },
    "backgroundpods": {"labelSelector": "which pods are background pods (`kai.scheduler/background=true`)"},
    "gpujoborder": {"mode": "`prefer-larger` or `prefer-smaller` (prefer-larger)"},
    "nodeplacement": {"gpu": "`binpack` or `spread` (binpack)", "cpu": "the same for pods without GPUs (binpack)"},
    "minruntime": {
        "defaultPreemptMinRuntime": "how long workloads run at least before preemption (0s)",
        "defaultReclaimMinRuntime": "before reclaim (0s)",
        "reclaimResolveMethod": "whose queue's minimum counts: `lca` or `queue` (lca)",
    },
    "disruptionbudgets": {
        "mode": "`ignore`, `prefer` victims that break no budget, or `respect` budgets always (ignore); "
        "`spec.disruptionBudgets` of a SchedulingShard sets it"
    },
    "numa": {
        "ignoreList": "resources that do not count, by comma",
        "reconstructAvailable": "work out what is free from where pods lie, not from reports (true)",
    },
}


def sections() -> str:
    """Actions and plugins."""
    return "\n".join([
        "## Actions\n",
        "`spec.actions.NAME.enabled` and `.priority` of a SchedulingShard switch them and change their order.\n",
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
