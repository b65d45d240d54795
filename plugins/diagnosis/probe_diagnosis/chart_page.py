"""Pages of line charts: one file with inline SVG, without scripts and external resources."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from probe_core.safe_text import escape_invisible

_CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:74em;padding:0 1em;color:#1c2430}
h1{font-size:1.25em}h2{font-size:1.1em;margin-top:2em}h3{font-size:.95em;margin:.2em 0;overflow-wrap:anywhere}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(21em,1fr));gap:1em}
.chart{border:1px solid #d5dae1;border-radius:4px;padding:.6em}.suspicious{border-color:#c0392b}
svg{width:100%;height:auto}.legend{font-size:.8em;color:#5a6472}li{overflow-wrap:anywhere}
"""


def render_chart_page(title: str, heading: str, body: Iterable[str]) -> str:
    """Return a page as HTML.

    Args:
        title: The title of the window.
        heading: The first line of the page.
        body: The lines of HTML below the heading, whose texts are escaped.
    """
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape_text(title)}</title>',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_SECURITY_POLICY}">',
            f"<style>{_STYLE}</style></head><body>",
            f"<h1>{escape_text(heading)}</h1>",
            *body,
            "</body></html>",
            "",
        ]
    )


def render_figure(title: str, drawing: str, *, is_suspicious: bool = False) -> str:
    """Return a titled chart as HTML; a suspicious one has a red frame."""
    kind = "chart suspicious" if is_suspicious else "chart"
    return f'<div class="{kind}"><h3>{escape_text(title)}</h3>{drawing}</div>'


def escape_text(value: object) -> str:
    """Return a value as text that HTML shows as it is, with invisible characters made visible."""
    return escape(escape_invisible(str(value)))
