"""Templates of pages: insertion of labels, and a cache of compiled templates next to the compiled module."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemBytecodeCache, FunctionLoader, Template
from jinja2.bccache import Bucket
from markupsafe import Markup

from probe_core import __version__
from probe_core.errors import make_printable
from probe_page.language import Words

MAX_TEXT_LENGTH = 4000
"""Maximum number of characters of a text on a page."""
_LABEL = re.compile(r'\{\{ t\("(\w+)"\) \}\}')
_ATTRIBUTE = re.compile(r'\{\{ attr\("([\w-]+)", "(\w+)"\) \}\}')


@cache
def read_asset(name: str) -> str:
    """Return the text of a file of the page."""
    return (files("probe_page") / "assets" / name).read_text("utf-8")


@cache
def load_template(name: str, lang: str, load_words: Callable[[], Words]) -> Template:
    """Return a template with labels in a language. A script of the page can switch the labels to another language.

    In a template, ``{{ t("key") }}`` is replaced by the text of a key, and ``{{ attr("title", "key") }}`` by an
    attribute with this text, before the template is compiled. Compiling takes longer than rendering, so compiled
    templates are cached.

    Args:
        name: The name of the template file in ``assets/``.
        lang: The language.
        load_words: A function that returns the texts.
    """
    return _create_environment(lang, load_words).get_template(name)


def render_page(
    template: str,
    lang: str,
    load_words: Callable[[], Words],
    *,
    styles: Sequence[str],
    scripts: Sequence[str],
    meta: Mapping[str, Any],
    **values: Any,
) -> bytes:
    """Return a page with its own styles and scripts.

    Args:
        template: The name of the template file.
        lang: The language.
        load_words: A function that returns the texts.
        styles: The names of the style files.
        scripts: The names of the script files, in order.
        meta: The data that the scripts read, in addition to the language and the texts.
        values: The values that the template shows.
    """
    style, script = ("\n".join(map(read_asset, names)) for names in (styles, scripts))
    page = load_template(template, lang, load_words).render(
        lang=lang,
        words=load_words(),
        version=__version__,
        style=Markup(style),
        script=Markup(script),
        style_hash=_compute_hash(style),
        script_hash=_compute_hash(script),
        meta=Markup(format_script_json({"lang": lang, "words": load_words(), **meta})),
        **values,
    )
    return page.encode("utf-8", "replace")


def format_script_json(value: Any) -> str:
    """Return data as JSON that may be within a script element of a page, whatever it contains."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def compress_json(value: Any) -> str:
    """Return data as compressed JSON, in a text that may be anywhere in a page; numbers must be finite."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def _compute_hash(text: str) -> str:
    """Return the source expression of an inline element for a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


class _TemplateCache(FileSystemBytecodeCache):
    """Cache of the compiled templates of a language, in the directory ``__pycache__`` of this package.

    If this directory is not readable or writable, each process compiles the templates itself.
    """

    def __init__(self, lang: str) -> None:
        directory = Path(cache_from_source(__file__)).parent
        super().__init__(str(directory), f"{__version__}-{lang}-%s.jinja2")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read a compiled template from the cache, if one exists for the same text."""
        with suppress(OSError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a compiled template to the cache."""
        with suppress(OSError):
            super().dump_bytecode(bucket)


@cache
def _create_environment(lang: str, load_words: Callable[[], Words]) -> Environment:
    def format_label(key: str) -> Markup:
        return Markup('<span data-t="{}">{}</span>').format(key, load_words()[key][lang])

    def format_attribute(name: str, key: str) -> Markup:
        return Markup('{}="{}" data-t-{}="{}"').format(name, load_words()[key][lang], name, key)

    def insert_labels(name: str) -> str:
        text = _LABEL.sub(lambda match: format_label(match[1]), read_asset(name))
        return _ATTRIBUTE.sub(lambda match: format_attribute(match[1], match[2]), text)

    environment = Environment(
        loader=FunctionLoader(insert_labels),
        autoescape=True,
        optimized=False,
        bytecode_cache=None if sys.dont_write_bytecode else _TemplateCache(lang),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["t"] = format_label
    environment.filters["printable"] = lambda text: make_printable(str(text), MAX_TEXT_LENGTH)
    environment.filters["number"] = lambda number: f"{number:,}"
    environment.filters["anchor"] = _format_anchor
    return environment


def _format_anchor(name: str) -> str:
    """Return the link to the row or call with a name; characters that UTF-8 cannot encode are replaced."""
    return "#" + quote(name.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), safe="")
