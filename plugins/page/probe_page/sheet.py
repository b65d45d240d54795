"""Pages of results that are read from files: the frame that they share, and how they are written."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from probe_core import __version__
from probe_core.errors import printable
from probe_core.files.atomic import writing
from probe_page import templates
from probe_page.document import _hash, embedded
from probe_page.language import Words, words
from probe_page.templates import asset

WORDS = "checks_words.json"
"""The texts of these pages beside those of the page of a comparison."""
STYLES, SCRIPTS = ("page.css", "sheet.css"), ("base.js", "sheet.js")
"""The style and script that all have."""

NEXT_TO_ONE = 1e-3
"""Distance from 1 up to which numbers keep all digits."""


def write_sheet(path: Path, template: str, script: str, lang: str, data: Any, **values: Any) -> Path:
    """Write a page.

    Args:
        path: The file.
        template: The name of its template.
        script: The name of its script, which runs after the shared ones.
        lang: The language that it opens in.
        data: The data that its script reads, as JSON has it; finite numbers only.
        values: The values that its template shows.

    Raises:
        UserError: It cannot be written.
    """
    page = _rendered(template, script, lang, data, values)
    with writing(path, "The page") as temporary:
        temporary.write_bytes(page)
    return path


def _rendered(template: str, script: str, lang: str, data: Any, values: Mapping[str, Any]) -> bytes:
    style, code = ("\n".join(map(asset, names)) for names in (STYLES, (*SCRIPTS, script)))
    page = templates.template(template, lang, all_words).render(
        lang=lang,
        words=all_words(),
        version=__version__,
        style=Markup(style),
        script=Markup(code),
        style_hash=_hash(style),
        script_hash=_hash(code),
        meta=Markup(embedded({"lang": lang, "words": all_words()})),
        data=packed(data),
        **values,
    )
    return page.encode("utf-8", "replace")


def packed(data: Any) -> str:
    """Return data as compressed JSON in a text that may stand anywhere in a page."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


@cache
def all_words() -> Words:
    """Return the texts of all pages."""
    own: Words = json.loads((files("probe_page") / "assets" / WORDS).read_text("utf-8"))
    return {**words(), **own}


def coded(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return texts as a list of the different ones, and the place of each in it."""
    places: dict[str, int] = {}
    codes = [places.setdefault(printable(text, 4000), len(places)) for text in texts]
    return {"texts": list(places), "codes": codes}


def number_cell(value: float | str | None) -> float | str | None:
    """Return a number as JSON has it; nan and infinities become texts."""
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    return value if value is None else printable(value, 400)


def shown_cell(value: float | str | None) -> float | str | None:
    """Return a number with the digits that a page shows: eight, or all next to 1, where they tell most."""
    if type(value) is float and (value == 0 or abs(abs(value) - 1) > NEXT_TO_ONE) and value - value == 0:
        return float(f"{value:.8g}")
    return number_cell(value)
