"""The `kai` command: a table of subcommands, each imported only when it is called.

Help is printed from the table alone, and a command loads no libraries of the others. `kai version`, `kai completion`
and `kai help` are defined here.
"""

from __future__ import annotations

import gc
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module

import click
from click.shell_completion import get_completion_class

from pykai import __version__

_NOT_IN_IMAGE = (
    "`kai {}` needs pykai.local, which container images leave out: "
    "install the wheel on your machine (pip install pykai)"
)


@dataclass(frozen=True)
class Row:
    """One subcommand: the module that defines it (as a function of its name, `_` for `-`) and its short help."""

    module: str
    help: str


COMMANDS: dict[str, Row] = {
    "simulate": Row("simulate", "Run Kubernetes manifests on an in-memory cluster in virtual time."),
    "replay": Row("replay", "Run scheduling cycles on a snapshot file of a scheduler."),
    "explain": Row("explain", "Explain why a workload is pending, what precedes it, and what would start it."),
    "what-if": Row("what_if", "Show what manifests or changes would do, without applying them."),
    "snapshot": Row("snapshot", "Write what the scheduler sees to a file; with --redact for a bug report."),
    "diff": Row("diff", "Show the differences between two snapshots and between their plans."),
    "queues": Row("overview", "Show the tree of queues: quota, fair share, use, waiting workloads."),
    "queue": Row("overview", "Show one queue: order of service with positions, running workloads."),
    "nodes": Row("overview", "Show the GPUs of nodes: the workloads that hold or share them, free devices."),
    "evictions": Row("overview", "Show evictions: pods, evictors, reasons, and the work lost."),
    "top": Row("overview", "Follow queues, waiting workloads and evictions in the terminal."),
    "dashboard": Row("dashboard", "Serve the dashboard: live, or of a snapshot file."),
    "snapshot-tool": Row("snapshot_tool", "Time one cycle on a snapshot file, with the flags of KAI's tool."),
    "fairshare-simulator": Row("fairshare_simulator", "Serve the fair shares of queues that a request describes."),
    "time-based-fairshare-simulator": Row(
        "time_based_fairshare_simulator", "Simulate how past use shifts a cluster between queues, into a CSV file."
    ),
    "local": Row("local", "A real Kubernetes control plane on this machine, with hollow GPU nodes."),
    "all": Row("all", "Every component in one process, for small clusters."),
    "scheduler": Row("scheduler", "Component: schedule the pods of one node pool."),
    "binder": Row("binder", "Component: carry out BindRequests and reserve shared GPUs."),
    "podgrouper": Row("podgrouper", "Component: create PodGroups for the pods of workloads."),
    "podgroup-controller": Row("podgroup_controller", "Component: update the status of PodGroups and validate them."),
    "queue-controller": Row("queue_controller", "Component: update the status of Queues and validate them."),
    "admission": Row("admission", "Component: serve the pod and topology webhooks."),
    "resource-reservation": Row(
        "resource_reservation", "Program of reservation pods: hold a shared GPU and report its UUID."
    ),
    "node-scale-adjuster": Row("node_scale_adjuster", "Component: make waiting GPU shares visible to an autoscaler."),
    "numa-placement-exporter": Row("numa_placement_exporter", "Component: report on which NUMA nodes pods run."),
    "operator": Row("operator", "Component: deploy the others as Config and SchedulingShard objects specify."),
    "upgrade": Row("install", "Apply the CRDs of this version; the chart runs it before an upgrade."),
    "version": Row("main", "Show the versions of kai and of Python."),
    "completion": Row("main", "Print a script that completes commands and flags in bash, zsh or fish."),
    "help": Row("main", "Show the help of a command."),
}


class SuggestingGroup(click.Group):
    """A group that suggests the closest subcommand for a mistyped one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does, with a suggestion in the error."""
        known = self.list_commands(ctx)
        close = get_close_matches(args[0], known, n=1) if args and args[0] not in known else []
        if close and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)


class CommandTable(SuggestingGroup):
    """The group of the subcommands in COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the subcommand; None if there is none of that name.

        Garbage collection is off meanwhile: what modules define lives as long as the process.
        """
        row = COMMANDS.get(cmd_name)
        if row is None:
            return None
        gc.disable()
        try:
            module = import_module(f"pykai.cli.{row.module}")
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("pykai.local"):
                raise click.ClickException(_NOT_IN_IMAGE.format(cmd_name)) from error
            raise
        finally:
            gc.enable()
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, without importing them."""
        rows: Sequence[tuple[str, str]] = [(name, row.help) for name, row in COMMANDS.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.command(cls=CommandTable)
@click.version_option(__version__, prog_name="kai")
def main() -> None:
    """pykai: a Kubernetes scheduler for AI clusters."""


_COMPLETION_VARIABLE = "_KAI_COMPLETE"


@click.command()
def version() -> None:
    """Show the versions of kai and of Python."""
    click.echo(f"kai {__version__} (Python {platform.python_version()})")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands and flags.

    \b
    bash:  source <(kai completion bash)      in ~/.bashrc
    zsh:   source <(kai completion zsh)       in ~/.zshrc
    fish:  kai completion fish | source       in ~/.config/fish/config.fish
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(main, {}, "kai", _COMPLETION_VARIABLE).source())


@click.command(name="help")
@click.argument("command", nargs=-1)
def help(command: tuple[str, ...]) -> None:  # noqa: A001 - the command's name
    """Show the help of a command, such as `kai help local up`."""
    main([*command, "--help"], prog_name="kai")
