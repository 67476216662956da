"""Lists in pages: the pages of one list show one moment, and a token lives until that moment is compacted away."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from pykai.kube.errors import Gone
from pykai.kube.memory.log import Record

OPEN_LISTS = 64


class Lists:
    """The lists somebody may still read on; the least recently begun one is forgotten first."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[int, Sequence[Record]]] = OrderedDict()
        self._count = 0

    def cut(self, records: Sequence[Record], limit: int, version: int) -> tuple[Sequence[Record], str]:
        """The first page, and the token for the rest; the token is empty if there is none."""
        if not limit or len(records) <= limit:
            return records, ""
        self._count += 1
        token = f"{version}.{self._count}"
        self._open[token] = (version, records[limit:])
        if len(self._open) > OPEN_LISTS:
            self._open.popitem(last=False)
        return records[:limit], token

    def resume(self, token: str, compacted: int) -> tuple[int, Sequence[Record]]:
        """The version of a list and its records from the token on; Gone if it is too long ago."""
        found = self._open.get(token)
        if found is None or found[0] < compacted:
            raise Gone("The provided continue parameter is too old to display a consistent list result.")
        return found
