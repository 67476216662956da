"""The figures of docs/concepts. Numbers in them are those of the worked examples on the pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from docs.generate.svg import (
    AMBER,
    BLUE,
    EDGE,
    GREEN,
    GREY,
    INK,
    LIGHT_AMBER,
    LIGHT_BLUE,
    LIGHT_GREEN,
    LIGHT_RED,
    MUTED,
    PAPER,
    RED,
    Canvas,
)
from pykai.kernels.fairshare import QueueColumns, fair_shares

Point = tuple[float, float]


# ---------------------------------------------------------------------------------------------------------- fair share
def fair_share() -> str:
    """The division of examples/concepts/fair-share.yaml, computed by the kernel that the scheduler uses."""
    names = ["research", "product", "vision", "language", "search"]
    parent = [-1, -1, 0, 0, 1]
    quota, weight, request = [8, 4, 6, 2, 4], [3, 1, 3, 2, 1], [20, 2, 12, 8, 2]
    shares = _gpu_shares(parent, 16, (quota, weight, request))
    art = Canvas(760, 300, "Fair shares of 16 GPUs: quota first, then the surplus by weight")
    scale = 36.0
    _bar(art, (120, 40), scale, [(16, "16 GPUs of ready nodes", GREY)])
    art.text((110, 62), "cluster", anchor="end", bold=1)
    rows: list[tuple[float, Sequence[int]]] = [(120, (0, 1)), (200, (2, 3, 4))]
    for y, queues in rows:
        x = 120.0
        for queue in queues:
            own = min(quota[queue], request[queue])
            parts = [(own, f"{own}", LIGHT_BLUE), (shares[queue] - own, f"+{shares[queue] - own:g}", LIGHT_GREEN)]
            _bar(art, (x, y), scale, parts)
            art.text((x + shares[queue] * scale / 2, y - 8), f"{names[queue]} {shares[queue]:g}", bold=1)
            x += shares[queue] * scale
    art.text((110, 142), "departments", anchor="end", ink=MUTED)
    art.text((110, 222), "teams", anchor="end", ink=MUTED)
    _legend(art, (120, 270), [("quota, as far as requested", LIGHT_BLUE), ("part of the surplus", LIGHT_GREEN)])
    return art.document()


def _gpu_shares(parent: list[int], total: float, columns: tuple[list[int], list[int], list[int]]) -> list[float]:
    quota, weight, request = (np.tile(np.array(column, dtype=float), (3, 1)) for column in columns)
    count = len(parent)
    queues = QueueColumns(
        deserved=quota,
        limit=np.full((3, count), -1.0),
        weight=weight,
        request=request,
        usage=np.zeros((3, count)),
        priority=np.full(count, 100),
        creation=np.zeros(count),
        rank=np.arange(count),
    )
    gpus: list[float] = fair_shares(np.array(parent), np.full(3, total), queues, 1.0)[2].tolist()
    return gpus


def _bar(art: Canvas, at: Point, scale: float, parts: Sequence[tuple[float, str, str]]) -> None:
    x, y = at
    for amount, text, fill in parts:
        if amount > 0:
            art.box((x, y), (amount * scale, 32), text, fill=fill)
            x += amount * scale


def _legend(art: Canvas, at: Point, entries: Sequence[tuple[str, str]]) -> None:
    x, y = at
    for text, fill in entries:
        art.box((x, y), (16, 14), fill=fill)
        art.text((x + 24, y + 12), text, anchor="start", size=12, ink=MUTED)
        x += 60 + 7 * len(text)


# ---------------------------------------------------------------------------------------------------- order of service
def order_of_service() -> str:
    art = Canvas(760, 345, "The next gang: from the root to the best child, then the best gang of the leaf")
    _tree_box(art, (380, 30), "root", best=True)
    for x, name, best in ((220, "research", True), (560, "product", False)):
        _edge(art, (380, 60), (x, 100), best)
        _tree_box(art, (x, 100), name, best)
    for x, name, best in ((110, "vision", False), (330, "language", True)):
        _edge(art, (220, 130), (x, 170), best)
        _tree_box(art, (x, 170), name, best)
    _edge(art, (560, 130), (560, 170), False)
    _tree_box(art, (560, 170), "search", False)
    for number, (text, fill) in enumerate((("priority 100", LIGHT_GREEN), ("below minimum", PAPER), ("older", PAPER))):
        art.box((265, 220 + 30 * number), (130, 24), text, fill=fill)
    art.arrow([(330, 200), (330, 218)], ink=GREEN)
    art.text((400, 236), "1. next gang", anchor="start", ink=GREEN, bold=1)
    art.text((400, 266), "2.", anchor="start", ink=MUTED)
    art.text((400, 296), "3.", anchor="start", ink=MUTED)
    art.text((440, 40), "siblings by queue order", anchor="start", ink=MUTED, size=12)
    art.text((470, 266), "gangs of a leaf by gang order", anchor="start", ink=MUTED, size=12)
    art.text((40, 332), "After each turn only the path from this leaf to the root is compared again.", anchor="start")
    return art.document()


def _tree_box(art: Canvas, top: Point, text: str, best: bool) -> None:
    art.box((top[0] - 50, top[1]), (100, 30), text, fill=LIGHT_GREEN if best else PAPER, bold=float(best))


def _edge(art: Canvas, start: Point, end: Point, best: bool) -> None:
    if best:
        art.arrow([start, end], ink=GREEN)
    else:
        art.line(start, end)


# --------------------------------------------------------------------------------------------------------------- gangs
def gangs() -> str:
    art = Canvas(760, 290, "A gang with two sub-groups: the minimum starts together, the rest follows pod by pod")
    art.box((290, 20), (180, 40), "training\nminSubGroup 2", fill=GREY, bold=1)
    for x, text in ((60, "leader\nminMember 1"), (330, "workers\nminMember 2")):
        art.box((x, 100), (180, 40), text, fill=GREY)
        art.line((380, 60), (x + 90, 100))
    pods = [(110, "leader", 0), (250, "worker-0", 0), (350, "worker-1", 0), (450, "worker-2", 1), (550, "worker-3", 2)]
    fills = ((LIGHT_BLUE, BLUE), (LIGHT_GREEN, GREEN), (PAPER, EDGE))
    for x, name, phase in pods:
        art.line(((150 if name == "leader" else 420), 140), (x + 40, 180))
        art.box((x, 180), (80, 32), name, fill=fills[phase][0], stroke=fills[phase][1])
    entries = [("gang phase: all or none", LIGHT_BLUE), ("elastic phase: one per turn", LIGHT_GREEN)]
    _legend(art, (110, 245), [*entries, ("waits for a GPU", PAPER)])
    return art.document()


# ----------------------------------------------------------------------------------------------------------- placement
def placement() -> str:
    art = Canvas(760, 250, "From all nodes to one: gates, filters, scores")
    steps = [
        ("gates", "once per pod:\nclaims, config maps,\nlargest node"),
        ("filters", "per node:\nresources, taints,\naffinity, ports"),
        ("scores", "sum of weights:\nhighest wins,\nthen the name"),
        ("reserve", "idle now: bind\nreleasing: pipeline"),
    ]
    for number, (name, text) in enumerate(steps):
        x = 30 + 185 * number
        art.box((x, 30), (145, 30), name, fill=LIGHT_BLUE, bold=1)
        art.box((x, 60), (145, 66), text)
        if number:
            art.arrow([(x - 40, 45), (x - 3, 45)])
    ladder = (
        "pack 0-9",
        "CPU node 10",
        "idle 1e3",
        "shared GPU 1e4",
        "topology 1e5-1e6",
        "affinity 1e6",
        "nominated 1e7",
    )
    art.text((30, 165), "score weights, from weak to strong", anchor="start", ink=MUTED)
    left = 30.0
    for text in ladder:
        width = 22 + 6.2 * len(text)
        art.box((left, 180), (width, 30), text, fill=LIGHT_GREEN)
        left += width
    return art.document()


# ------------------------------------------------------------------------------------------------------------ eviction
def eviction() -> str:
    art = Canvas(760, 330, "Three ways to free a place, before and after")
    panels: list[tuple[str, str, list[str], list[str]]] = [
        (
            "preempt",
            "same queue, lower priority",
            ["train", "sweep", "sweep", "sweep"],
            ["train", "sweep", "debug", "debug"],
        ),
        ("reclaim", "queue above its fair share", ["red"] * 8, ["red"] * 5 + ["blue"] * 3),
        (
            "consolidation",
            "every victim moves",
            ["a", "a", "", "", "b", "b", "", ""],
            ["a", "a", "b", "b"] + ["large"] * 4,
        ),
    ]
    fills = {"debug": LIGHT_GREEN, "blue": LIGHT_GREEN, "large": LIGHT_GREEN, "b": LIGHT_AMBER, "": PAPER}
    for number, (name, text, before, after) in enumerate(panels):
        y = 30 + 100 * number
        art.text((30, y + 16), name, anchor="start", bold=1)
        art.text((30, y + 36), text, anchor="start", ink=MUTED, size=12)
        for x, pods in ((230, before), (510, after)):
            for at, pod in enumerate(pods):
                fill = fills.get(pod, LIGHT_BLUE)
                gap = 8 if len(pods) == 8 and at >= 4 and name == "consolidation" else 0
                column, row = (at % 4, at // 4) if len(pods) == 8 else (at, 0)
                art.box((x + 54 * column, y + 28 * row + gap), (52, 26), pod, fill=fill)
        art.arrow([(460, y + 26), (496, y + 26)])
    return art.document()


# --------------------------------------------------------------------------------------------------------- GPU sharing
def gpu_sharing() -> str:
    art = Canvas(760, 260, "Three devices of a node and the pods that share them")
    devices: list[list[tuple[str, float, str]]] = [
        [("half 0.5", 0.5, LIGHT_BLUE), ("third 0.3", 0.3, LIGHT_GREEN), ("mem. 0.2", 0.2, LIGHT_AMBER)],
        [("pair 0.4", 0.4, LIGHT_RED), ("free 0.6", 0.6, PAPER)],
        [("pair 0.4", 0.4, LIGHT_RED), ("free 0.6", 0.6, PAPER)],
    ]
    for number, parts in enumerate(devices):
        y, x = 40 + 62 * number, 150.0
        art.text((140, y + 22), f"GPU {number}", anchor="end", bold=1)
        for text, portion, fill in parts:
            art.box((x, y), (400 * portion, 34), text, fill=fill)
            x += 400 * portion
        art.box((580, y), (150, 34), f"reservation pod {number}", fill=GREY)
        art.arrow([(578, y + 17), (553, y + 17)])
    note = "each reservation pod holds nvidia.com/gpu: 1, so the kubelet gives the device to no other pod"
    art.text((150, 236), note, anchor="start", ink=MUTED, size=12)
    return art.document()


# ------------------------------------------------------------------------------------------------------------ topology
def topology() -> str:
    art = Canvas(760, 300, "A topology of blocks, racks and nodes with the free GPUs of each domain")
    art.box((320, 20), (120, 32), "root: 24 free", fill=GREY)
    blocks = [("block a", 12, 200), ("block b", 12, 560)]
    racks = [
        ("a1", "5 free", 110, False),
        ("a2", "7 free", 290, True),
        ("b1", "4 free", 470, False),
        ("b2", "8 free", 650, False),
    ]
    idle = [(1, 4), (3, 4), (0, 4), (4, 4)]
    for name, free, x in blocks:
        art.line((380, 52), (x, 90))
        art.box((x - 60, 90), (120, 32), f"{name}: {free} free", fill=GREY)
    for number, ((name, text, x, chosen), gpus) in enumerate(zip(racks, idle, strict=True)):
        art.line((blocks[number // 2][2], 122), (x, 160))
        art.box(
            (x - 60, 160), (120, 32), f"rack {name}: {text}", fill=LIGHT_GREEN if chosen else GREY, bold=float(chosen)
        )
        for at, free_gpus in enumerate(gpus):
            left = x - 62 + 64 * at
            art.line((x, 192), (left + 30, 225))
            art.box((left, 225), (60, 30), f"{free_gpus} of 4", fill=PAPER)
    note = "six pods, required level rack: a2 (6/7) is tighter than b2 (6/8); a1 and b1 cannot hold six"
    art.text((380, 285), note, ink=GREEN)
    return art.document()


# ------------------------------------------------------------------------------------------------------------- binding
def binding() -> str:
    art = Canvas(760, 380, "From a decision to a running pod: who writes what")
    lanes = {"scheduler": 90, "API server": 290, "binder": 490, "kubelet": 670}
    for name, x in lanes.items():
        art.box((x - 65, 15), (130, 30), name, fill=LIGHT_BLUE, bold=1)
        art.line((x, 45), (x, 350), dash="4 4")
    steps = [
        ("scheduler", "API server", "create BindRequest", MUTED),
        ("API server", "binder", "watch", MUTED),
        ("binder", "API server", "create reservation pod", AMBER),
        ("API server", "kubelet", "start reservation pod", AMBER),
        ("kubelet", "API server", "annotation: device id", AMBER),
        ("binder", "API server", "label pod, fill config maps", AMBER),
        ("binder", "API server", "volumes, claims", MUTED),
        ("binder", "API server", "POST binding", GREEN),
        ("API server", "kubelet", "start pod", GREEN),
    ]
    for number, (source, target, text, ink) in enumerate(steps):
        y = 75 + 30 * number
        art.arrow([(lanes[source], y), (lanes[target], y)], text, ink=ink)
    art.text((40, 368), "amber: only for a share of a GPU", anchor="start", ink=AMBER, size=12)
    return art.document()


# ------------------------------------------------------------------------------------------------------------ grouping
def grouping() -> str:
    art = Canvas(760, 240, "From a pod to its PodGroup by its topmost owner")
    chain = [(30, "Pod\nbert-worker-0"), (230, "PyTorchJob\nbert"), (430, "row of the kind table\nPyTorchJob")]
    for x, text in chain:
        art.box((x, 40), (160, 46), text, fill=LIGHT_BLUE)
    art.arrow([(190, 63), (227, 63)], "owner")
    art.arrow([(390, 63), (427, 63)], "kind")
    art.box(
        (430, 130),
        (300, 80),
        "PodGroup pg-bert-…\nqueue vision, priority train\nmaster: 1, worker: 2",
        fill=LIGHT_GREEN,
    )
    art.arrow([(510, 86), (510, 127)])
    art.text((520, 112), "rule", anchor="start", ink=MUTED, size=12)
    art.arrow([(428, 170), (110, 170), (110, 89)], ink=INK)
    art.text((270, 162), "pod-group-name, subgroup-name", ink=MUTED, size=12)
    art.text((680, 60), "labels, annotations", ink=RED, size=12)
    art.text((680, 78), "of owner and pod", ink=RED, size=12)
    art.arrow([(680, 86), (680, 127)], ink=RED)
    return art.document()


FIGURES: dict[str, Callable[[], str]] = {
    "fair-share": fair_share,
    "order-of-service": order_of_service,
    "gangs": gangs,
    "placement": placement,
    "eviction": eviction,
    "gpu-sharing": gpu_sharing,
    "topology": topology,
    "binding": binding,
    "grouping": grouping,
}


def documents() -> dict[str, str]:
    """The text of every figure, by its path in the project."""
    return {f"docs/img/concepts/{name}.svg": draw() for name, draw in FIGURES.items()}
