"""Serving certificates of the webhooks: made and renewed here, unless an administrator supplied the Secret.

A certificate that was just made counts although the watch does not show its Secret yet, so that it is made once.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pykai.controllers.operator.comparison import ours
from pykai.controllers.operator.components import COMPONENTS, Component
from pykai.controllers.operator.installation import SecretData
from pykai.controllers.operator.webhooks import WebhookParts
from pykai.controllers.operator.writer import Writer
from pykai.kube.resources import SECRET
from pykai.objects import names
from pykai.objects.config_kinds import Config

Object = dict[str, Any]


class Certificates:
    """What the Secrets of all webhook servers hold, or should."""

    def __init__(self, writer: Writer, parts: WebhookParts) -> None:
        self._writer = writer
        self._parts = parts
        self._issued: dict[str, SecretData] = {}

    async def of(self, config: Config) -> tuple[dict[str, SecretData], frozenset[str]]:
        """By Service, the data of its Secret; and the Services whose Secret is not ours."""
        found: dict[str, SecretData] = {}
        provided = set()
        for row in COMPONENTS:
            if not row.webhook(config):
                continue
            live = await self._writer.look_up(SECRET, row.secret)
            if live is not None and not ours(live):
                found[row.name] = live.get("data") or {}
                provided.add(row.name)
            else:
                found[row.name] = await self._issue(row, config.namespace, live)
        return found, frozenset(provided)

    async def _issue(self, row: Component, namespace: str, live: Object | None) -> SecretData:
        present = _data(live) or self._issued.get(row.name)
        self._issued[row.name] = await asyncio.to_thread(self._parts.issue, row.name, namespace, present)
        return self._issued[row.name]


def _data(live: Object | None) -> SecretData | None:
    """What one of our own Secrets holds; one that another operator made is not taken over."""
    if live is None or (live["metadata"].get("labels") or {}).get(names.MANAGED_BY_LABEL) != names.OPERATOR:
        return None
    return live.get("data")
