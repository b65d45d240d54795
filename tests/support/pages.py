"""Pages of comparisons: what is written in them, read without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np


class Page(HTMLParser):
    """A page, with its elements, its texts and its data.

    Attributes:
        tags: The names of its elements, each with its attributes.
        texts: The texts within each kind of element.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text("utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br", "rect", "input", "img"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self._open[-1] if self._open else "", []).append(data)

    @property
    def policy(self) -> dict[str, str]:
        """The directives of its Content-Security-Policy."""
        (text,) = [
            attrs["content"] or "" for _, attrs in self.tags if attrs.get("http-equiv") == "Content-Security-Policy"
        ]
        return dict(part.strip().partition(" ")[::2] for part in text.split(";"))

    @property
    def meta(self) -> dict[str, Any]:
        """The data that its script begins with."""
        (text,) = re.findall(r'<script type="application/json" id="meta">(.*?)</script>', self.source, re.DOTALL)
        read: dict[str, Any] = json.loads(text)
        return read

    def columns(self, kind: str) -> dict[str, list[Any]]:
        """Return all cells of its rows or of its calls, by column."""
        blocks = re.findall(rf'data-block="{kind}">([^<]*)<', self.source)
        names = self.meta[kind]["names"]
        texts: list[list[str]] = [[""] for _ in names]
        found: list[list[Any]] = [[] for _ in names]
        for block in blocks:
            data = zlib.decompress(base64.b64decode(block))
            size = int.from_bytes(data[:4], "little")
            head, place = json.loads(data[4 : 4 + size]), 4 + size
            for column, (number, code, new) in enumerate(head["columns"]):
                texts[column] += new
                numbers: Any = [None] * head["rows"]
                codes: Any = [0] * head["rows"]
                for type_ in filter(None, (number, code)):
                    length = int(type_[1]) * head["rows"]
                    planes = np.frombuffer(data[place : place + length], np.uint8)
                    values = np.ascontiguousarray(planes.reshape(int(type_[1]), -1).T).view(f"<{type_}")
                    if type_ == number:
                        numbers = values.ravel().tolist()
                    else:
                        codes = values.ravel().tolist()
                    place += length
                found[column] += [texts[column][c] if c else n for n, c in zip(numbers, codes)]
            assert place == len(data)
        assert all(len(column) == self.meta[kind]["count"] for column in found)
        return dict(zip(names, found))


def hash_of(text: str) -> str:
    """Return the source expression that admits an inline element with this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def data_of(path: Path) -> Any:
    """Return the data that the script of a page of a pre-check or of merged ranks reads."""
    (text,) = re.findall(r'id="data">([^<]*)<', path.read_text("utf-8"))
    return json.loads(zlib.decompress(base64.b64decode(text)))
