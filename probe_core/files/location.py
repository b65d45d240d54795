"""Locations of runs: local paths, or URLs that fsspec supports, such as ``s3://bucket/dump``.

A URL becomes a path of universal_pathlib, which has the interface of ``pathlib.Path``.
Remote tensor files are copied to this machine before they are memory-mapped.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from probe_core.errors import UserError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def parse_location(text: str | os.PathLike[str]) -> Path:
    """Return the path of a location: a local path, or a path of universal_pathlib for a URL.

    Raises:
        UserError: fsspec does not support the URL, or a package that reads it is missing.
    """
    if not isinstance(text, str) or not _URL.match(text):
        return cast(Path, text) if is_remote(text) else Path(text)
    if text.lower().startswith("file://"):
        host, slash, rest = text[len("file://") :].partition("/")
        if host not in ("", "localhost"):
            raise UserError(f"{text} is on the machine {host}.", "Give a path of this machine.")
        path = unquote(slash + rest)
        return Path(path[1:] if re.match(r"/[A-Za-z]:", path) else path)
    try:
        import upath
    except ImportError:
        raise UserError(
            f"{text} is a remote location, which needs the packages fsspec and universal_pathlib.",
            "Install them with: pip install fsspec universal_pathlib",
        ) from None
    try:
        remote = upath.UPath(text)
        remote.fs  # noqa: B018 - opens the file system, and fails if a package is missing
    except (ValueError, ImportError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{text} cannot be reached: {reason}.",
            "Check the URL, and install the package that fsspec names for it, such as s3fs for s3://.",
        ) from None
    return cast(Path, remote)


def is_remote(path: Any) -> bool:
    """Return True for a path outside this machine's file system."""
    is_local = isinstance(path, Path) and getattr(path, "protocol", "") in ("", "file", "local")
    return hasattr(path, "fs") and not is_local
