"""Files that users name, read with limits: their kind, their size, and the number of nodes in yaml.

Reading a named pipe or a device might never end, and aliases in eight lines of yaml can expand to more nodes
than memory can hold.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from probe_core.errors import UserError
from probe_core.files.location import is_remote

MAX_FILE_BYTES = 1 << 30
"""Largest size in bytes of a file that is read as a whole."""
MAX_NODES = 1_000_000
"""Largest number of nodes in a yaml file, with those behind aliases and merge keys counted each time."""
MAX_DEPTH = 100
"""Largest depth of nested values in a yaml file."""
MAX_SCALAR_LENGTH = 1000
"""Largest number of characters of a number or a date in a yaml file."""
MAX_NUMBER = 1_000_000
"""Largest step or rank that is accepted."""
_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|#[^\n]*|/\*.*?\*/', re.DOTALL)
_FILE_KINDS = ((stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISDIR, "a directory"))


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """Return the numbers in a text such as ``0,2-4`` in ascending order, each once."""
    values: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})(?:-(\d{1,7}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= MAX_NUMBER:
            raise UserError(f'{option}: "{part}" is no number or range such as 2-4.', "Write it like 0,2-4.")
        values.update(range(first, last + 1))
    return tuple(sorted(values))


def check_regular(path: Path) -> None:
    """Check before opening that a path is a regular file.

    Raises:
        OSError: The file does not exist, or it is a pipe, a device or a directory, as ``strerror`` says.
    """
    if is_remote(path):
        return
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _FILE_KINDS if is_kind(mode)), "a device")
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, f"it is {kind}, not a regular file", os.fspath(path))


def read_regular_file(path: Path) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: It is not a regular file, cannot be read, or is larger than ``MAX_FILE_BYTES``.
        ValueError: The path contains characters that no file name can have.
    """
    check_regular(path)
    if path.stat().st_size > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_FILE_BYTES >> 30} GiB", os.fspath(path))
    return path.read_bytes()


def load_object(path: Path, file_kind: str, *, has_comments: bool = False) -> dict[str, Any]:
    """Return the JSON object in a small file; ``file_kind`` is the kind of file in messages.

    With ``has_comments``, comments (``// …``, ``# …`` and ``/* … */``) are ignored.
    """
    try:
        data = read_regular_file(path)
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise UserError(
            f"The {file_kind} {path} cannot be read: {getattr(error, 'strerror', None) or 'no such path'}.",
            "Check the path and its permissions.",
        ) from None
    if not data.strip():
        raise UserError(f"The {file_kind} {path} is empty.", f"Give a {file_kind} that holds a JSON object.")
    text = data.decode("utf-8-sig", "replace")
    try:
        value = json.loads(_COMMENT.sub(_blank_comment, text) if has_comments else text)
    except json.JSONDecodeError as error:
        at = len(text[: error.pos].encode("utf-8"))
        problem = f"{error.msg.removesuffix(' at')} at byte {at}"
    except RecursionError:
        problem = "values are nested too deeply"
    except ValueError:
        problem = "a number has too many digits"
    else:
        problem = ""
    if problem:
        raise UserError(f"The {file_kind} {path} is not valid JSON: {problem}.", "Correct the file, or write it again.")
    if not isinstance(value, dict):
        raise UserError(
            f"The {file_kind} {path} holds {_describe_type(value)} where an object was expected.",
            'It must begin with "{".',
        )
    return value


def _blank_comment(match: re.Match[str]) -> str:
    """Return a text as it is, and spaces for a comment, so that the places of errors stay the same."""
    return match[1] or " " * len(match[0])


def _describe_type(value: object) -> str:
    names = {list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def parse_yaml(text: str) -> Any:
    """Parse a yaml text with the safe loader.

    Raises:
        yaml.YAMLError: It is not valid yaml, or exceeds a limit.
        ValueError: A number has too many digits, or a date is not valid.
        RecursionError: Values are nested too deeply.
    """
    import yaml

    sizes: dict[int, int] = {}

    class Loader(yaml.SafeLoader):
        """A safe loader that counts nodes before it constructs objects."""

        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()  # type: ignore[no-untyped-call]
            if self.depth == MAX_DEPTH:
                self.refuse(event, f"values are nested more than {MAX_DEPTH} deep")
            self.depth += 1
            node: Any = super().compose_node(parent, index)
            self.depth -= 1
            if not isinstance(event, yaml.AliasEvent):
                problem = _count_nodes(node, sizes)
            else:
                problem = "" if id(node) in sizes else "an alias refers to a value that contains it"
            if problem:
                self.refuse(event, problem)
            return node

        def refuse(self, event: Any, problem: str) -> None:
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)

    return yaml.load(text, Loader=Loader)


def _count_nodes(node: Any, sizes: dict[int, int]) -> str:
    """Add the number of nodes in a yaml node to ``sizes``, and return the limit that it exceeds; empty for none."""
    children: list[Any] = []
    if not isinstance(node.value, str):  # a sequence of nodes, or a mapping as pairs of nodes
        children = [part for item in node.value for part in (item if isinstance(item, tuple) else [item])]
    elif len(node.value) > MAX_SCALAR_LENGTH and not node.tag.endswith(":str"):
        return f"a number or a date of more than {MAX_SCALAR_LENGTH} characters"
    sizes[id(node)] = 1 + sum(sizes[id(child)] for child in children)
    return f"it expands to more than {MAX_NODES:,} values" if sizes[id(node)] > MAX_NODES else ""


def describe_yaml_error(error: Exception) -> str:
    """Return the line of a yaml error, and the limit that was exceeded, to follow "is not valid yaml"."""
    mark = getattr(error, "problem_mark", None)
    where = f" at line {mark.line + 1}" if mark else ""
    return where + (f": {error.problem}" if type(error).__name__ == "ComposerError" else "")  # type: ignore[attr-defined]
