"""`kai version`, `kai completion` and `kai help`: what a shell asks of every command."""

from __future__ import annotations

import platform

import click
from click.shell_completion import get_completion_class

from pykai import __version__
from pykai.cli.main import main

_VARIABLE = "_KAI_COMPLETE"


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
    make = get_completion_class(shell)
    assert make is not None
    click.echo(make(main, {}, "kai", _VARIABLE).source())


@click.command(name="help")
@click.argument("command", nargs=-1)
def help(command: tuple[str, ...]) -> None:  # noqa: A001 - the command's name
    """Show the help of a command, such as `kai help local up`."""
    main([*command, "--help"], prog_name="kai")
