"""Pods that are refused, each with the text its author reads. A row: what is wrong, the pod, the message."""

from __future__ import annotations

from typing import Any

Row = tuple[str, dict[str, Any], str]

NOT_A_PORTION = "gpu-fraction annotation value must be a positive number smaller than 1.0"
NOT_A_NOTATION = (
    "gpu-fraction annotation value must be a float written with a decimal point or a scientific notation .given value: "
)
NOT_A_MEMORY = "gpu-memory annotation value must be a positive integer greater than 0"
NOT_A_COUNT = "fraction count annotation value must be a positive integer greater than 0"
NO_PORTION = "cannot request multiple fractional devices without specifying fraction portion or gpu-memory"
ONLY_FRACTIONS = "MPS is only supported with GPU fraction request"
FRACTION_AND_WHOLE = "cannot have both GPU fraction request and whole GPU resource request/limit"
BOTH = "cannot request both GPU and GPU memory: annotation"
BOTH_ANNOTATIONS = f"{BOTH}s gpu-fraction and gpu-memory are mutually exclusive, keep one of them"
MEMORY_AND_WHOLE = f"{BOTH} gpu-memory and a limit on whole GPUs are mutually exclusive"
NOT_FOUND = "failed to get fraction container ref: "
WHOLE = {"limits": {"nvidia.com/gpu": "1"}}


def pod(annotations: Any = None, /, **spec: Any) -> dict[str, Any]:
    """A pod of our scheduler with one container `main`, unless the spec says otherwise."""
    return {
        "metadata": {"name": "train", "namespace": "team", **({"annotations": annotations} if annotations else {})},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}], **spec},
    }


def fraction(text: str, message: str = "") -> Row:
    said = f", given value: {text[:64]}; for whole GPUs set a limit of nvidia.com/gpu on the container instead"
    return f"fraction {text[:20]!r}", pod({"gpu-fraction": text}), message or NOT_A_PORTION + said


def memory(text: str) -> Row:
    return (
        f"memory {text[:20]!r}",
        pod({"gpu-memory": text}),
        f"{NOT_A_MEMORY}, given value: {text[:64]}; it counts MiB, such as 2000",
    )


def devices(text: str) -> Row:
    item = pod({"gpu-fraction": "0.5", "gpu-fraction-num-devices": text})
    return f"devices {text[:20]!r}", item, f"{NOT_A_COUNT}, given value: {text[:64]}"


def container(what: str, annotations: dict[str, str], message: str, **spec: Any) -> Row:
    return what, pod({"gpu-fraction": "0.5", **annotations}, **spec), message


def visible(what: str, entry: dict[str, Any], message: str, field: str = "containers") -> Row:
    holder = {"name": "sneaky", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", **entry}]}
    others = [] if field == "initContainers" else [{"name": "main"}]
    return what, pod(**{"containers": [{"name": "main"}], field: [*others, holder]}), message


def misfit(what: str, body: dict[str, Any], message: str) -> Row:
    return what, body, message


FRACTIONS: list[Row] = [
    *map(fraction, ["", " ", "0", "0.0", "-0", "+0", ".0", "0e5", "1", "1.0", "1.", "01", "1e0", "10e-1", "2", "100"]),
    *map(fraction, ["-1", "-0.5", "-.5", "-1e-9", "1.0000001", "1.5", "1e400", "1e-400", "9" * 400, "0." + "0" * 400]),
    *map(fraction, ["inf", "+Inf", "-inf", "Infinity", "-INFINITY", "+nan", "-NaN", "0x1p1", "-0x1p-1", "0x0p0"]),
    *map(fraction, ["half", "50%", "0,5", "0.5.5", "0.5f", "500m", "0.5Gi", "1/2", "0.5 ", " 0.5", "0.5\n", "0_1.5"]),
    *map(fraction, ["٠.٥", "０.５", "½", "−0.5", "0.5\u200b", "e-1", ".", "-", "0.5e", "0.5e+", "0x", "0x1", "0b1"]),
    *map(fraction, ["0." + "9" * 40, "0x1p99999999999999999999", "true", "null", "{}"]),
    *[fraction(text, NOT_A_NOTATION + text) for text in ("nan", "NaN", "NAN", "0x1p-1", "0X.8P0", "+0x1p-2")],
]

MEMORIES: list[Row] = [
    *map(memory, ["", "0", "00", "-1", "-0", "+5", "1.0", "1e3", "0x10", "2000Mi", "2Gi", "two", " 5", "5 ", "5\n"]),
    *map(memory, ["18446744073709551616", "9" * 5000, "٥", "５", "²", "1_000", "NaN", "inf", "1,000"]),
]

DEVICES: list[Row] = [
    *map(devices, ["", "0", "-1", "1.2", "1.0", "1e1", "+2", "two", "18446744073709551616", "٢", "nan", "2 "]),
    ("devices without share", pod({"gpu-fraction-num-devices": "1"}), NO_PORTION),
    ("devices with a whole GPU", pod({"gpu-fraction-num-devices": "2"}, containers=[{"resources": WHOLE}]), NO_PORTION),
    ("bad devices without share", pod({"gpu-fraction-num-devices": "x"}), NO_PORTION),
    ("devices of memory", pod({"gpu-memory": "5", "gpu-fraction-num-devices": "0"}), f"{NOT_A_COUNT}, given value: 0"),
]

COMBINATIONS: list[Row] = [
    ("both annotations", pod({"gpu-fraction": "0.5", "gpu-memory": "2000"}), BOTH_ANNOTATIONS),
    ("both annotations, both bad", pod({"gpu-fraction": "x", "gpu-memory": "y"}), BOTH_ANNOTATIONS),
    ("mps alone", pod({"mps": "true"}), ONLY_FRACTIONS),
    ("mps and a whole GPU", pod({"mps": "true"}, containers=[{"name": "m", "resources": WHOLE}]), ONLY_FRACTIONS),
    (
        "fraction and a whole GPU",
        pod({"gpu-fraction": "0.5"}, containers=[{"name": "m", "resources": WHOLE}]),
        FRACTION_AND_WHOLE,
    ),
    (
        "fraction and a whole GPU in a sidecar",
        pod({"gpu-fraction": "0.5"}, containers=[{"name": "m"}, {"name": "s", "resources": WHOLE}]),
        FRACTION_AND_WHOLE,
    ),
    (
        "fraction and a whole GPU in an init container",
        pod({"gpu-fraction": "0.5"}, initContainers=[{"name": "i", "resources": WHOLE}]),
        FRACTION_AND_WHOLE,
    ),
    (
        "everything at once",
        pod({"gpu-fraction": "0.5", "gpu-memory": "5"}, containers=[{"name": "m", "resources": WHOLE}]),
        FRACTION_AND_WHOLE,
    ),
    (
        "memory and a whole GPU",
        pod({"gpu-memory": "5"}, containers=[{"name": "m", "resources": WHOLE}]),
        MEMORY_AND_WHOLE,
    ),
]

INIT = {"gpu-fraction-container-type": "InitContainer"}
REGULAR = {"gpu-fraction-container-type": "RegularContainer"}
CONTAINERS: list[Row] = [
    container(
        "no container of that name",
        {"gpu-fraction-container-name": "gone"},
        NOT_FOUND + "container with name gone not found for fraction request",
    ),
    container(
        "a name in another case",
        {"gpu-fraction-container-name": "Main"},
        NOT_FOUND + "container with name Main not found for fraction request",
    ),
    container("no init container at all", INIT, NOT_FOUND + "no init container found for fraction request"),
    container(
        "a regular container called an init container",
        {**INIT, "gpu-fraction-container-name": "main"},
        NOT_FOUND + "init container with name main not found for fraction request",
        initContainers=[{"name": "load"}],
    ),
    container(
        "an init container called a regular one",
        {**REGULAR, "gpu-fraction-container-name": "load"},
        NOT_FOUND + "regular container with name load not found for fraction request",
        initContainers=[{"name": "load"}],
    ),
    container(
        "an unknown type of container",
        {"gpu-fraction-container-type": "Sidecar"},
        NOT_FOUND + "gpu-fraction-container-type annotation value must be InitContainer or RegularContainer"
        ", given value: Sidecar",
    ),
    container(
        "the type in another case",
        {"gpu-fraction-container-type": "initcontainer"},
        NOT_FOUND + "gpu-fraction-container-type annotation value must be InitContainer or RegularContainer"
        ", given value: initcontainer",
    ),
]

VALUE = (
    "container sneaky has an environment variable NVIDIA_VISIBLE_DEVICES defined with a value of {}. This is forbidden "
    "due to conflicts with Nvidia's device plugin. The only values that are allowed are 'void' or 'none'"
)
REFERENCE = (
    "container sneaky has an environment variable NVIDIA_VISIBLE_DEVICES defined with a valueFrom reference. This is "
    "forbidden due to possible conflicts with Nvidia's device plugin"
)
VISIBLE: list[Row] = [
    *[visible(f"devices named {text!r}", {"value": text}, VALUE.format(text)) for text in ("all", "0", "3,6", "VOID")],
    visible("an init container names devices", {"value": "all"}, VALUE.format("all"), "initContainers"),
    visible("devices from a ConfigMap", {"valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}, REFERENCE),
    visible("devices from somewhere", {"valueFrom": {}}, REFERENCE),
]

MISFITS: list[Row] = [
    misfit(
        "an annotation that is a number",
        pod({"gpu-fraction": 0.5}),
        "pod.metadata.annotations[...]: Expected str, got float",
    ),
    misfit(
        "a list of annotations", pod(["gpu-fraction"]), "pod.metadata.annotations: Expected object | null, got array"
    ),
    misfit("no metadata", {"spec": {"schedulerName": "kai-scheduler"}}, "pod: Object missing required field metadata"),
    misfit(
        "containers by name", pod(containers={"main": {}}), "pod.spec.containers: Expected array | null, got object"
    ),
    misfit("a container that is a name", pod(containers=["main"]), "pod.spec.containers[0]: Expected object, got str"),
    misfit(
        "an environment by name",
        pod(containers=[{"name": "main", "env": {"A": "b"}}]),
        "pod.spec.containers[0].env: Expected array | null, got object",
    ),
    misfit(
        "limits that are a list",
        pod(containers=[{"name": "main", "resources": {"limits": ["nvidia.com/gpu"]}}]),
        "pod.spec.containers[0].resources.limits: Expected object | null, got array",
    ),
    misfit(
        "a namespace that is a number",
        {"metadata": {"namespace": 5}, "spec": {"schedulerName": "kai-scheduler"}},
        "pod.metadata.namespace: Expected str | null, got int",
    ),
]

REFUSED: list[Row] = [*FRACTIONS, *MEMORIES, *DEVICES, *COMBINATIONS, *CONTAINERS, *VISIBLE, *MISFITS]
