"""All files with generated parts, by their path in the project."""

from __future__ import annotations

from pathlib import Path

from deploy import dashboard

from docs.generate import extension_points, fields, figures, flags, metrics, objects, tokens, workloads

ROOT = Path(__file__).parents[2]


def pages() -> dict[str, str]:
    """The text every file should have."""
    return {
        "docs/explain.md": tokens.with_table((ROOT / "docs/explain.md").read_text()),
        "docs/plugins.md": extension_points.with_table((ROOT / "docs/plugins.md").read_text()),
        "deploy/grafana/kai-scheduler.json": dashboard.document(),
        "docs/reference/flags.md": flags.page(),
        "docs/reference/values.md": fields.values_page(),
        "docs/reference/configuration.md": fields.configuration_page(),
        "docs/reference/metrics.md": metrics.page(),
        "docs/reference/objects.md": objects.page(),
        "docs/reference/workloads.md": workloads.page(),
        **figures.documents(),
    }
