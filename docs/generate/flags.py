"""reference/flags.md: every command with its flags, and the environment variables."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click

import pykai
from docs.generate import markdown
from pykai.cli.main import COMMANDS, main

HEAD = """# Commands, flags, environment variables

Generated from the code by `make docs`. `kai COMMAND --help` shows the same. Flags are written `--flag value` or
`--flag=value`; a switch alone means true, and `--switch=false` turns it off. Flags marked "No effect" are accepted for
KAI's scripts, with a line in the log.

The operator sets the flags of the components. Add flags of the scheduler in `spec.args` of a SchedulingShard, or in the
chart value `scheduler.args`.
"""

ENVIRONMENT = {
    "KUBECONFIG": "Path of a kubeconfig, unless `--kubeconfig` is given.",
    "PATH": "Where `kai local kubectl` looks for plugins, after the directory of `kai` itself.",
    "KUBERNETES_SERVICE_HOST": "Set by Kubernetes in every pod: the API server, with the pod's service account.",
    "KUBERNETES_SERVICE_PORT": "The port of it; 443 if absent.",
    "CONTAINER_SANDBOX_MOUNT_POINT": "Where mounts are, if the container is a process of its host; set by Kubernetes.",
    "POD_NAMESPACE": "The namespace a component runs in: leases and certificates are kept there. Set by the operator.",
    "NAMESPACE": "The same under the name KAI uses; read if `POD_NAMESPACE` is not set.",
    "POD_NAME": "The pod itself: the name in elections, and what reservation pods annotate. Set by the operator.",
    "COLUMNS": "How wide tables are that do not go to a terminal; 120 if absent.",
    "KAI_LISTEN_HOST": "Where pages are served that no flag names a host for; all addresses if absent.",
    "KAI_FAULTS_WORKERS": "How many histories `kai simulate --faults` plays at a time; one per processor if absent.",
    "NODE_NAME": "The node; read by the NUMA placement exporter where no flag names one.",
}


def page() -> str:
    """The text of the page."""
    parts = [HEAD, *(_section(name, command) for name, command in commands())]
    rows = [(f"`{name}`", text) for name, text in ENVIRONMENT.items()]
    usage = (
        "A SchedulingShard may name one more, in `usageDBConfig.connectionStringEnvVar`: the address of the usage "
        "database.\nTests read `KAI_TEST_ROUNDS`: how often `make test-long` repeats.\n"
    )
    return "\n".join([*parts, "## Environment variables\n", markdown.table(("variable", "meaning"), rows), usage])


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with what is typed to call it, in the order of `kai --help`."""
    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        yield from _with_subcommands(f"kai {name}", command)


def _with_subcommands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for below, each in command.commands.items():
            yield from _with_subcommands(f"{name} {below}", each)


def _section(name: str, command: click.Command) -> str:
    own = COMMANDS.get(name.removeprefix("kai "))
    about = own.help if own else (command.help or "").split("\n\n")[0]
    rows = [_row(option) for option in command.params if isinstance(option, click.Option)]
    table = markdown.table(("flag", "default", "meaning"), rows) if rows else ""
    return f"## {name}\n\n{' '.join(about.split())}\n\n{table}"


def _row(option: click.Option) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    default = option.default
    shown = "" if default is None or callable(default) or "Sentinel" in type(default).__name__ else default
    written = str(shown).lower() if isinstance(shown, bool) else str(shown)
    return names, markdown.code(written), meaning(option)


def meaning(option: click.Option) -> str:
    """What a flag does, and its possible values where they are few."""
    chosen = option.type.choices if isinstance(option.type, click.Choice) else ()
    values = ", ".join(f"`{each}`" for each in chosen)
    return f"{option.help or ''} {f'One of {values}.' if values else ''}".strip()


def variables_read() -> set[str]:
    """The environment variables that the installed program reads, found in its source."""
    found: set[str] = set()
    for path in Path(pykai.__file__).parent.rglob("*.py"):
        if "local" not in path.relative_to(Path(pykai.__file__).parent).parts:
            found |= {name for node in ast.walk(ast.parse(path.read_text())) for name in _read(node)}
    return found


def _read(node: ast.AST) -> Iterator[str]:
    """The constants in `environ.get("X")`, `environ["X"]` and `"X" in environ`."""
    match node:
        case ast.Call(func=ast.Attribute(value=where, attr="get"), args=[ast.Constant(value=str(name)), *_]):
            pass
        case ast.Subscript(value=where, slice=ast.Constant(value=str(name))):
            pass
        case ast.Compare(left=ast.Constant(value=str(name)), ops=[ast.In()], comparators=[where]):
            pass
        case _:
            return
    if ast.unparse(where) in ("environ", "os.environ"):
        yield name
