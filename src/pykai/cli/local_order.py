"""What `kai local up` and `kai local run` are asked for: the options, and the nodes they describe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from pykai.cli.flag_checks import no_nan
from pykai.config.fields import FieldError
from pykai.hollow.settings import KubeletSettings
from pykai.hollow.shapes import GpuShape, NodeShape, read_shapes, repeat
from pykai.local.site import checked_name

_NODE_OPTIONS = ("nodes", "gpus", "gpu_memory", "gpu_product", "time_slices")


class Order(msgspec.Struct, frozen=True):
    """The options of `up` and `run`; `nodes_file` replaces the options that describe nodes."""

    name: str = "kai"
    nodes: int = 2
    gpus: int = 8
    gpu_memory: int = GpuShape().memory_mib
    gpu_product: str = GpuShape().product
    time_slices: int = 1
    nodes_file: str = ""
    job_seconds: float = KubeletSettings().job_seconds
    kube_scheduler: bool = False
    bare: bool = False

    def __post_init__(self) -> None:
        checked_name(self.name)

    def arguments(self) -> list[str]:
        """The order as options of the command line."""
        given = msgspec.structs.asdict(self)
        if self.nodes_file:
            given = {name: value for name, value in given.items() if name not in _NODE_OPTIONS}
        flags = {name.replace("_", "-"): value for name, value in given.items() if value != "" and value is not False}
        return [f"--{flag}" if value is True else f"--{flag}={value}" for flag, value in flags.items()]

    def shapes(self) -> list[NodeShape]:
        """The hollow nodes it asks for; FieldError names what is wrong."""
        if self.nodes_file:
            return read_shapes(Path(self.nodes_file))
        gpus = GpuShape(self.gpus, self.gpu_memory, self.gpu_product, self.time_slices) if self.gpus else None
        for field, message in gpus.problems() if gpus else ():
            raise FieldError(f"--gpu-{field}", message)
        return repeat(NodeShape("node", gpus), self.nodes)


NAME = click.option("--name", default=Order().name, show_default=True, help="Which of your local clusters.")
_ORDER_OPTIONS = (
    NAME,
    click.option("--nodes", default=2, show_default=True, type=click.IntRange(0), help="How many hollow nodes."),
    click.option("--gpus", default=8, show_default=True, type=click.IntRange(0), help="GPUs of each node."),
    click.option("--gpu-memory", default=Order().gpu_memory, show_default=True, type=click.IntRange(1), help="MiB."),
    click.option("--gpu-product", default=Order().gpu_product, show_default=True, help="Name of the GPUs."),
    click.option(
        "--time-slices", default=1, show_default=True, type=click.IntRange(1), help="How often each GPU is offered."
    ),
    click.option("--nodes-file", default="", type=click.Path(dir_okay=False), help="YAML list of unequal nodes."),
    click.option(
        "--job-seconds",
        default=Order().job_seconds,
        show_default=True,
        type=click.FloatRange(0),
        callback=no_nan,
        help="How long a Job's pod runs without annotation pykai.io/run-seconds.",
    ),
    click.option("--kube-scheduler", is_flag=True, help="Also run Kubernetes' own scheduler."),
    click.option("--bare", is_flag=True, help="Control plane and nodes only, no pykai component."),
)


def order_of(options: dict[str, Any]) -> Order:
    """The order of a command's options; those that describe nodes do not go with a file that does."""
    context = click.get_current_context()
    typed = [name for name in _NODE_OPTIONS if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if options["nodes_file"] and typed:
        raise click.UsageError(f"--nodes-file describes the nodes: leave out --{typed[0].replace('_', '-')}")
    return Order(**options)


def takes_order(command: Callable[..., None]) -> Callable[..., None]:
    """A decorator: the command takes the options of an order."""
    for option in reversed(_ORDER_OPTIONS):
        command = option(command)
    return command
