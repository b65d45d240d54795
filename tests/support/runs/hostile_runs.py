"""Runs whose every text was written by someone who means harm, and what must not come out of the commands."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

PAYLOADS = {
    "colour": "\x1b[8;7m", "title": "\x1b]0;owned\x07", "link": "\x1b]8;;http://evil\x1b\\x\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07", "answer": "\x1b[6n\x1bP$q\"p\x1b\\", "c1": "\x9b31m\x90\x9d0;x\x9c\x85",
    "bell": "\x07\x08\x08\x7f", "return": "\r                    \r", "lines": "\n\x0b\x0c\x1c",
    "direction": "\u202e\u2066\u200f", "nothing": "\u200b\u2060\ufeff\U000e0041", "separator": "\u2028\u2029",
    "nul": "\x00", "surrogate": "\ud800", "marks": "a" + "\u0336\u0337\u0338\u0301\u0302\u0303" * 3,
    "private": "\ue000\U0010ffff\ufffe", "blank": "\u3164\u115f\u2800\u00a0",
    "formula": "=cmd|' /C calc'!A0",
}  # fmt: skip
"""By name, what a text of a dump may hold."""
EVERYTHING = "".join(PAYLOADS.values())
FIELDS = ("op", "keyword", "dtype", "type", "text", "frame", "module", "data_name", "head", "checksum")
"""The kinds of texts in a run."""
READABLE = ("op", "keyword", "text", "frame", "module", "checksum")
"""Those that may be anything, and the run is read all the same."""

_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_RAW = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029{_BIDI}\ud800-\udfff]")
_STYLES = re.compile(r"\x1b\[(?:0|1|31|32|33)m|\x1b\[\?25[lh]|\x1b\[K")
_NAME = re.compile(r"(\w+)\.(.*)", re.DOTALL)


def make_hostile(source: Path, target: Path, payload: str, fields: Iterable[str] = FIELDS) -> Path:
    """Copy the two dumps of a run, with two steps, and put ``payload`` into texts of these kinds."""
    chosen = frozenset(fields)
    for side in ("npu_dump", "bench_dump"):
        for step in ("step0", "step1"):
            shutil.copytree(source / side / "step0", target / side / step)
    for path in target.rglob("*.json"):
        value = json.loads(path.read_text("utf-8"))
        change = _construct if path.name == "construct.json" else _stack if path.name == "stack.json" else _dump
        path.write_text(json.dumps(change(value, lambda kind, text: _put(kind, text, payload, chosen))), "utf-8")
    return target


Put = Callable[[str, str], str]


def _put(kind: str, text: str, payload: str, chosen: frozenset[str]) -> str:
    if kind not in chosen:
        return text
    return _NAME.sub(lambda found: f"{found[1]}.{payload}{found[2]}", text) if kind == "op" else text + payload


def _dump(value: dict[str, Any], put: Put) -> Any:
    head = {key: put("head", item) if isinstance(item, str) else item for key, item in value.items()}
    return {**head, "data": {put("op", key): _tree(item, put) for key, item in value["data"].items()}}


def _tree(value: Any, put: Put, key: str = "") -> Any:
    if isinstance(value, list):
        return [_tree(item, put, key) for item in value]
    if isinstance(value, dict):
        is_open = key == "input_kwargs"
        return {put("keyword", k) if is_open else k: _tree(item, put, k) for k, item in value.items()}
    kind = {"md5": "checksum", "value": "text"}.get(key, key)
    return put(kind, value) if isinstance(value, str) else value


def _stack(value: dict[str, Any], put: Put) -> Any:
    return {
        key: [[put("op", name) for name in names], [put("frame", frame) for frame in frames]]
        for key, (names, frames) in value.items()
    }


def _construct(value: dict[str, Any], put: Put) -> Any:
    return {
        put("op", key): put("module", parent) if isinstance(parent, str) else parent for key, parent in value.items()
    }


# -- what came out -----------------------------------------------------------------------------------


def dangers(text: str) -> list[str]:
    """Return the parts of a printed text that act on a terminal or are invisible."""
    found = [char for line in text.split("\n") for char in line if not char.isprintable()]
    return sorted({ascii(char) for char in found} | ({"marks"} if "\u0301\u0302\u0303" in text else set()))


def dangers_on_terminal(text: str) -> list[str]:
    """The same of what a terminal was sent, but for our colours and the bar."""
    return dangers(_STYLES.sub("", text).replace("\r", ""))


def dangers_in_file(path: Path) -> list[str]:
    """Return the parts of a file that would act on the terminal it is printed on."""
    return sorted({ascii(char) for char in _RAW.findall(path.read_bytes().decode("utf-8").replace("\r\n", "\n"))})


def formulas(cells: Iterable[str]) -> list[str]:
    """Cells that a spreadsheet may take for a formula."""
    return [cell for cell in cells if (text := cell.strip(" \t\n\x0b\x0c\r\xa0\ufeff\u200b\u3000"))
            and text[0] in "=+-@" and not _is_number(text)]  # fmt: skip


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
