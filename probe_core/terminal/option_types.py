"""The types of the values of options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from probe_core.files.location import parse_location
from probe_core.files.user_files import parse_numbers


class Location(click.Path):
    """A path, or the URL of a place that fsspec knows; completed as a path."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path or URL."""
        return parse_location(value)


class NumberRanges(click.ParamType):  # type: ignore[type-arg]
    """Integers and ranges of them: ``0,2-4``."""

    name = "number[,number…]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: Any) -> tuple[int, ...]:
        """Return the numbers in ascending order, each once."""
        return value if isinstance(value, tuple) else parse_numbers(value, param.opts[-1] if param else "it")
