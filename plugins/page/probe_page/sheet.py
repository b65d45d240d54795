"""Pages of results that are read from files: the frame that they share, and how they are written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from probe_core.errors import make_printable
from probe_core.files.atomic import write_atomically
from probe_page.language import Words, load_words
from probe_page.templates import compress_json, render_page

WORDS_FILE = "checks_words.json"
"""The texts of these pages in addition to the texts of the page of a comparison."""
STYLES, SCRIPTS = ("page.css", "sheet.css"), ("base.js", "sheet.js")
"""The style and script that all have."""

EXACT_RANGE_AROUND_ONE = 1e-3
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
    page = render_page(
        template,
        lang,
        load_all_words,
        styles=STYLES,
        scripts=(*SCRIPTS, script),
        meta={},
        data=compress_json(data),
        **values,
    )
    with write_atomically(path, "The page") as temporary:
        temporary.write_bytes(page)
    return path


@cache
def load_all_words() -> Words:
    """Return the texts of all pages."""
    sheet_words: Words = json.loads((files("probe_page") / "assets" / WORDS_FILE).read_text("utf-8"))
    return {**load_words(), **sheet_words}


def encode_texts(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return texts as a list of the different ones, and the place of each in it."""
    places: dict[str, int] = {}
    codes = [places.setdefault(make_printable(text, 4000), len(places)) for text in texts]
    return {"texts": list(places), "codes": codes}


def encode_number(value: float | str | None) -> float | str | None:
    """Return a number as JSON has it; nan and infinities become texts."""
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    return value if value is None else make_printable(value, 400)


def round_cell(value: float | str | None) -> float | str | None:
    """Return a number with the digits that a page shows: eight, or all next to 1, where they tell most."""
    if type(value) is float and (value == 0 or abs(abs(value) - 1) > EXACT_RANGE_AROUND_ONE) and value - value == 0:
        return float(f"{value:.8g}")
    return encode_number(value)
