"""`kai upgrade`: what has to be done once before a new version starts. The chart runs it before every upgrade."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from pykai.cli.component import errors_for_people, set_up_logs
from pykai.cli.flag_checks import at_least
from pykai.cli.flags import CLIENT, LOGS, Flag, takes, tell_ineffective
from pykai.controllers.operator.upgrade import topologies
from pykai.kube.credentials import find_access
from pykai.kube.definitions import define
from pykai.kube.http import HttpApi
from pykai.kube.transport import Settings
from pykai.objects.crds import manifests

FLAGS = (
    Flag("migrate-topologies", True, "Also copy topologies of Kueue that have no namesake here."),
    Flag("timeout-seconds", 60.0, "How long to wait for a definition to be in force.", check=at_least(0)),
)


async def _run(given: dict[str, Any]) -> None:
    client = Settings(qps=max(given["qps"], 0.0), burst=given["burst"])
    async with HttpApi(find_access(given["kubeconfig"]), client) as api:
        await define(api, manifests(), given["timeout_seconds"])
        if given["migrate_topologies"]:
            await topologies(api)


@click.command("upgrade")
@takes(FLAGS, CLIENT, LOGS)
def upgrade(**given: Any) -> None:
    """Apply the definitions of this version; take over topologies of Kueue."""
    set_up_logs(given)
    tell_ineffective(LOGS, given)
    with errors_for_people():
        asyncio.run(_run(given))
