"""The dictionary of the page, and the option that chooses its language."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from probe_core.errors import UserError
from probe_core.model.plan import Plan

FORMAT = "html"
LANGUAGES = ("en", "zh")

Words = Mapping[str, Mapping[str, str]]
"""The texts of the page by key and language."""


@cache
def load_words() -> Words:
    """Return all texts of the page."""
    read: Words = json.loads((files("probe_page") / "assets" / "words.json").read_text("utf-8"))
    return read


def set_page_language(plan: Plan, values: Mapping[str, Any], option_names: Set[str]) -> Plan:
    """Return the plan with the page in the language of ``--lang``.

    Raises:
        UserError: The plan writes no page.
    """
    if not any(map(_is_page, plan.formats)):
        raise UserError("--lang is the language of the page, and no page is written.", "Add --format html.")
    formats = (_set_language(name, values["lang"]) if _is_page(name) else name for name in plan.formats)
    return replace(plan, formats=tuple(formats))


def _is_page(name: str) -> bool:
    """Return True for the format of the page, with or without parameters."""
    return name.partition(":")[0] == FORMAT


def _set_language(name: str, language: str) -> str:
    """Return the format of the page with its other parameters and a language."""
    parameters = [item for item in name.split(":")[1:] if item.partition("=")[0] != "lang"]
    return ":".join((FORMAT, *parameters, f"lang={language}"))
