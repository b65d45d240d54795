"""The templates of pages: their labels, and their compilation, which is kept beside that of this module."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.resources import files
from importlib.util import cache_from_source
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemBytecodeCache, FunctionLoader, Template
from jinja2.bccache import Bucket
from markupsafe import Markup

from probe_core import __version__
from probe_core.errors import printable
from probe_page.language import Words

LONGEST = 4000
"""Largest number of characters that a page shows of a text."""
_LABEL = re.compile(r'\{\{ t\("(\w+)"\) \}\}')
_ATTRIBUTE = re.compile(r'\{\{ attr\("([\w-]+)", "(\w+)"\) \}\}')


@cache
def asset(name: str) -> str:
    """Return the text of a file of the page."""
    return (files("probe_page") / "assets" / name).read_text("utf-8")


@cache
def template(name: str, lang: str, words: Callable[[], Words]) -> Template:
    """Return a template with labels in a language, which a script of the page can change.

    ``{{ t("key") }}`` in a template is the text of a key, and ``{{ attr("title", "key") }}`` an attribute
    with it. They are put in before the template is compiled, which takes longer than to render it.

    Args:
        name: The name of its file.
        lang: The language.
        words: A function that returns the texts.
    """
    return _environment(lang, words).get_template(name)


class _Compiled(FileSystemBytecodeCache):
    """Compiled templates of a language, as files where Python keeps the compiled modules of this package.

    Where files cannot be read or written there, each process compiles the templates itself.
    """

    def __init__(self, lang: str) -> None:
        directory = Path(cache_from_source(__file__)).parent
        super().__init__(str(directory), f"{__version__}-{lang}-%s.jinja2")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read a compiled template, if there is one of the same text."""
        with suppress(OSError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a compiled template."""
        with suppress(OSError):
            super().dump_bytecode(bucket)


@cache
def _environment(lang: str, words: Callable[[], Words]) -> Environment:
    def label(key: str) -> Markup:
        return Markup('<span data-t="{}">{}</span>').format(key, words()[key][lang])

    def attribute(name: str, key: str) -> Markup:
        return Markup('{}="{}" data-t-{}="{}"').format(name, words()[key][lang], name, key)

    def with_labels(name: str) -> str:
        text = _LABEL.sub(lambda found: label(found[1]), asset(name))
        return _ATTRIBUTE.sub(lambda found: attribute(found[1], found[2]), text)

    environment = Environment(
        loader=FunctionLoader(with_labels),
        autoescape=True,
        optimized=False,
        bytecode_cache=None if sys.dont_write_bytecode else _Compiled(lang),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["t"] = label
    environment.filters["shown"] = lambda text: printable(str(text), LONGEST)
    environment.filters["counted"] = lambda number: f"{number:,}"
    environment.filters["anchor"] = _anchor
    return environment


def _anchor(name: str) -> str:
    """Return the link to the row or call with a name; characters that UTF-8 cannot encode are replaced."""
    return "#" + quote(name.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), safe="")
