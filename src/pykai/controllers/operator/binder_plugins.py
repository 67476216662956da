"""The binder's plugins: the defaults, and what a Config changes about them."""

from __future__ import annotations

from typing import Any, Final

from pykai.controllers.operator.installation import Facts
from pykai.controllers.operator.overrides import Row, changed
from pykai.objects.config_kinds import Binder

HAMI_CORE: Final = "hamicore"
BIND_SECONDS: Final = 120


def merged(binder: Binder, facts: Facts) -> dict[str, dict[str, Any]]:
    """Every plugin with `enabled`, `priority` and `arguments`, as the binder's flag takes them."""
    seconds = str(binder.volume_binding_timeout_seconds or BIND_SECONDS)
    cdi = facts.cdi if binder.cdi_enabled is None else binder.cdi_enabled
    waits = {"bindTimeoutSeconds": seconds}
    usual = {
        "volumebinding": Row(True, 300, waits),
        "dynamicresources": Row(True, 200, waits),
        "gpusharing": Row(True, 100, {"cdiEnabled": "true" if cdi else "false"}),
        HAMI_CORE: Row(False, 50, {}),
    }
    rows = sorted(changed(usual, binder.plugins).items())
    return {
        name: {"enabled": row.enabled, "priority": row.priority, "arguments": dict(row.arguments)} for name, row in rows
    }
