"""`python -m docs.generate` writes every generated page."""

from __future__ import annotations

from docs.generate.pages import ROOT, pages

for name, text in pages().items():
    (ROOT / name).write_text(text)
