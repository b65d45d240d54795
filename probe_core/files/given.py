"""Files that a person names, read within bounds: regular files of some size, yaml of so many nodes.

A named pipe would be waited for without end, a device never ends, and eight lines of yaml can stand for more
nodes than there is time to build.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

from probe_core.files.location import is_remote

LARGEST = 1 << 30
"""Bytes of a file that is read whole."""
MOST_NODES = 1_000_000
"""Nodes that a yaml file may stand for, those behind its aliases and merge keys counted each time."""
DEEPEST = 100
"""Levels of a yaml file."""
LONGEST = 1000
"""Characters of a number or a date in a yaml file."""
_KINDS = ((stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISDIR, "a directory"))


def check_regular(path: Path) -> None:
    """Refuse what is no regular file, before it is opened.

    Raises:
        OSError: There is no such file, or it is a pipe, a device, a directory; ``strerror`` says so.
    """
    if is_remote(path):
        return
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "a device")
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, f"it is {kind}, not a regular file", os.fspath(path))


def read_given(path: Path) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: As for ``check_regular``; or the file cannot be read, or is larger than ``LARGEST``.
        ValueError: No file can have this path.
    """
    check_regular(path)
    if path.stat().st_size > LARGEST:
        raise OSError(errno.EFBIG, f"it is larger than {LARGEST >> 30} GiB", os.fspath(path))
    return path.read_bytes()


def parse_yaml(text: str) -> Any:
    """What a yaml text says, by the safe loader.

    Raises:
        yaml.YAMLError: It is no yaml, or goes beyond a bound.
        ValueError: A number of too many digits, or a date that is none.
        RecursionError: Values are nested too deeply.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """Counts what its nodes stand for before anything is built of them."""

        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()  # type: ignore[no-untyped-call]
            is_alias = isinstance(event, yaml.AliasEvent)

            def refuse(why: str) -> None:
                raise yaml.composer.ComposerError(None, None, why, event.start_mark)

            self.depth += 1
            if self.depth > DEEPEST:
                refuse(f"values are nested more than {DEEPEST} deep")
            node: Any = super().compose_node(parent, index)
            self.depth -= 1
            if is_alias:
                if id(node) not in sizes:
                    refuse("an alias stands within what it stands for")
                return node
            if isinstance(node, yaml.ScalarNode):
                if len(node.value) > LONGEST and not node.tag.endswith(":str"):
                    refuse(f"a number or a date of more than {LONGEST} characters")
                children: list[Any] = []
            elif isinstance(node, yaml.SequenceNode):
                children = node.value
            else:
                children = [part for pair in node.value for part in pair]
            sizes[id(node)] = 1 + sum(sizes[id(child)] for child in children)
            if sizes[id(node)] > MOST_NODES:
                refuse(f"it stands for more than {MOST_NODES:,} values")
            return node

    sizes: dict[int, int] = {}
    return yaml.load(text, Loader=Loader)


def yaml_problem(error: Exception) -> str:
    """Where a yaml text is at fault and, where it goes beyond a bound, why; to follow "is not valid yaml"."""
    mark = getattr(error, "problem_mark", None)
    where = f" at line {mark.line + 1}" if mark else ""
    return where + (f": {error.problem}" if type(error).__name__ == "ComposerError" else "")  # type: ignore[attr-defined]
