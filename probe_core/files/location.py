"""Where a run lies: a path of this machine, or a URL that fsspec knows, such as ``s3://bucket/dump``.

A URL becomes a path of universal_pathlib, which answers like one of pathlib's; what reads JSON need not know
which it has. Whoever maps tensors fetches them into a local file before.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from probe_core.errors import UserError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def location(text: str | os.PathLike[str]) -> Path:
    """The path that ``text`` means, on this machine or elsewhere.

    Raises:
        UserError: A URL of a kind that is not known, or for which a package is missing.
    """
    if not isinstance(text, str) or not _URL.match(text):
        return cast(Path, text) if is_remote(text) else Path(text)
    if text.lower().startswith("file://"):
        host, slash, rest = text[len("file://") :].partition("/")
        if host not in ("", "localhost"):
            raise UserError(f"{text} lies on the machine {host}.", "Give a path of this machine.")
        path = unquote(slash + rest)
        return Path(path[1:] if re.match(r"/[A-Za-z]:", path) else path)
    try:
        import upath
    except ImportError:
        raise UserError(
            f"{text} lies elsewhere, which takes the packages fsspec and universal_pathlib to read.",
            "Install them with: pip install fsspec universal_pathlib",
        ) from None
    try:
        found = upath.UPath(text)
        found.fs  # noqa: B018 - makes the connection's object, and says if a package is missing
    except (ValueError, ImportError, OSError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{text} cannot be reached: {why}.",
            "Check the URL, and install the package that fsspec names for it, such as s3fs for s3://.",
        ) from None
    return cast(Path, found)


def is_remote(path: Any) -> bool:
    """True for a path that does not lie in this machine's file system."""
    return not isinstance(path, (str, Path)) and hasattr(path, "fs")
