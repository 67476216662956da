"""A small SVG canvas: boxes, texts and arrows are enough for the figures of docs/concepts.

Figures have a background of their own, so they read the same on light and dark pages, and use fonts of the reader's
system only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

INK, MUTED, PAPER, EDGE = "#1f2933", "#616e7c", "#ffffff", "#9aa5b1"
BLUE, LIGHT_BLUE = "#2f6fb3", "#bcd7f0"
GREEN, LIGHT_GREEN = "#2d8659", "#c3e6d2"
AMBER, LIGHT_AMBER = "#b7791f", "#f7e2b5"
RED, LIGHT_RED = "#b83a3a", "#f5c9c9"
GREY = "#e4e7eb"
_FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


@dataclass
class Canvas:
    """Shapes in the order in which they are drawn; coordinates are pixels from the top left."""

    width: int
    height: int
    title: str
    shapes: list[str] = field(default_factory=list)

    def box(self, at: tuple[float, float], size: tuple[float, float], text: str = "", **style: str | float) -> None:
        """A rectangle with its text centred; several lines are separated by a newline."""
        (x, y), (w, h) = at, size
        fill, stroke = style.get("fill", PAPER), style.get("stroke", EDGE)
        dash = f' stroke-dasharray="{style["dash"]}"' if "dash" in style else ""
        self.shapes.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" rx="4" fill="{fill}" '
            f'stroke="{stroke}"{dash}/>'
        )
        lines = text.split("\n") if text else []
        for number, line in enumerate(lines):
            middle = y + h / 2 + 4.5 + (number - (len(lines) - 1) / 2) * 16
            self.text((x + w / 2, middle), line, ink=style.get("ink", INK), bold=style.get("bold", 0))

    def text(self, at: tuple[float, float], text: str, **style: str | float) -> None:
        """One line; `anchor` is start, middle (the default) or end."""
        weight = ' font-weight="600"' if style.get("bold") else ""
        self.shapes.append(
            f'<text x="{_n(at[0])}" y="{_n(at[1])}" text-anchor="{style.get("anchor", "middle")}" '
            f'font-size="{style.get("size", 13)}" fill="{style.get("ink", INK)}"{weight}>{escape(text)}</text>'
        )

    def arrow(self, points: Sequence[tuple[float, float]], text: str = "", ink: str = MUTED, dash: str = "") -> None:
        """A line along the points with a head at its end; the text stands above the middle of its first part."""
        path = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.shapes.append(
            f'<polyline points="{path}" fill="none" stroke="{ink}" stroke-width="1.5"{dashes} marker-end="url(#head)"/>'
        )
        if text:
            (x1, y1), (x2, y2) = points[:2]
            self.text(((x1 + x2) / 2, (y1 + y2) / 2 - 6), text, ink=ink, size=12)

    def line(self, start: tuple[float, float], end: tuple[float, float], dash: str = "") -> None:
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.shapes.append(
            f'<line x1="{_n(start[0])}" y1="{_n(start[1])}" x2="{_n(end[0])}" y2="{_n(end[1])}" '
            f'stroke="{EDGE}" stroke-width="1.2"{dashes}/>'
        )

    def document(self) -> str:
        """The file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img" font-family="{_FONT}">'
        )
        marker = (
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0,0 L10,5 L0,10 z" fill="{MUTED}"/></marker></defs>'
        )
        ground = f'<rect width="{self.width}" height="{self.height}" rx="8" fill="{PAPER}"/>'
        return "\n".join([head, f"<title>{escape(self.title)}</title>", marker, ground, *self.shapes, "</svg>", ""])


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")
