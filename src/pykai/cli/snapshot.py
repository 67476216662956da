"""`kai snapshot`: writes the state of a cluster to a snapshot file."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import click

from pykai.cli.flags import InputError
from pykai.cli.replay import reported_input_errors
from pykai.cli.state import StateSource, source_of, state_options, with_api
from pykai.explain.redact import redact_file
from pykai.explain.source import opened
from pykai.kube.api import Api


@click.command("snapshot")
@click.option(
    "-o",
    "--output",
    "target",
    default="snapshot.zip",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write.",
)
@click.option("--redact", is_flag=True, help="Remove environments, commands and images, and rename all objects.")
@state_options
def snapshot(target: Path, redact: bool, **options: Any) -> None:
    """Write what the scheduler sees to a file, for `kai replay`, `kai explain` or a bug report.

    With --redact the file contains no name, label or text of the cluster but leads to the same decisions. With
    --snapshot an existing file is redacted.
    """
    source = source_of(options)
    if source.snapshot is not None and not redact:
        raise click.UsageError("--snapshot FILE is for --redact: without it the file would only be copied")
    with tempfile.TemporaryDirectory() as folder:
        file = source.snapshot or _take_snapshot(source, Path(folder) / "snapshot.zip")
        with reported_input_errors(file):
            opened(file)
        try:
            with target.open("wb") as out:
                if redact:
                    redact_file(file, out)
                else:
                    out.write(file.read_bytes())
        except OSError as error:
            raise InputError(f"{target} cannot be written: {error.strerror}") from error
    click.echo(f"written: {target}", err=True)


def _take_snapshot(source: StateSource, file: Path) -> Path:
    from pykai.explain.live_cluster import listed, setting_of
    from pykai.plugins import registry
    from pykai.scheduler.debug_server import SnapshotContext, write_snapshot

    async def take(api: Api) -> None:
        setting = await setting_of(api, source.shard)
        _, notes = await listed(api, setting.params)
        for note in (*setting.notes, *notes):
            click.echo(f"note: {note}", err=True)
        context = SnapshotContext(setting.config, registry.BUILT_IN, gpu_sharing_mode=setting.gpu_sharing_mode)
        with await write_snapshot(api, setting.params, context) as archive, file.open("wb") as out:
            shutil.copyfileobj(archive, out)

    with_api(source, take)
    return file
