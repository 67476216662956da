"""The flags of components that serve webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pykai.admission.registration import PodSelection
from pykai.admission.server import SERVING_CERTIFICATES
from pykai.cli.component import own_host
from pykai.cli.flag_checks import port
from pykai.cli.flags import Flag
from pykai.cli.webhooks import WebhookSettings

WEBHOOK = (
    Flag("webhook-addr", 9443, "Port on which webhooks are served.", check=port),
    Flag("webhook-cert-dir", str(SERVING_CERTIFICATES), "Directory with tls.crt and tls.key."),
    Flag(
        "webhook-own-host",
        "",
        "Host under which the API server reaches this process: it then makes its own certificate in the directory and "
        "registers its webhooks itself. For use outside of an installation.",
    ),
)


def webhook_settings(
    given: Mapping[str, Any], paths: Sequence[str], pods: PodSelection | None = None
) -> WebhookSettings:
    """What the flags say about serving these paths."""
    return WebhookSettings(
        paths,
        pods or PodSelection(),
        host=own_host() or WebhookSettings.host,
        port=given["webhook_addr"],
        certificates=Path(given["webhook_cert_dir"]),
        own_host=given["webhook_own_host"],
    )
