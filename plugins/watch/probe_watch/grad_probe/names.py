"""Names of the files of grad_probe (docs/gradients.md#files)."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

MAX_NAME_BYTES = 255
NPY_SUFFIX = ".npy"
OLD_SUFFIX = ".pt"
SUMMARY_NAME = re.compile(r"grad_summary_(\d{1,9})\.csv")
PACKED_NAME = re.compile(r"grad_directions_(\d{1,9})\.safetensors")
STEP_NAME = re.compile(r"step(\d{1,9})")
RANK_NAME = re.compile(r"rank(\d{1,9})")
_UNSAFE_CHARACTERS = re.compile(r'[\x00-\x1f\x7f/\\%:*?"<>|\ud800-\udfff]')


def get_summary_path(rank_directory: Path, step: int) -> Path:
    """Return the path of the csv of a step."""
    return rank_directory / f"grad_summary_{step}.csv"


def get_packed_path(rank_directory: Path, step: int) -> Path:
    """Return the path of the packed signs of a step."""
    return rank_directory / f"grad_directions_{step}.safetensors"


def step_directory(rank_directory: Path, step: int) -> Path:
    """Return the directory of the ``.npy`` files of a step."""
    return rank_directory / f"step{step}"


def get_rank_path(root: Path, rank: int) -> Path:
    """Return the directory of a rank."""
    return root / f"rank{rank}"


def format_direction_file_name(parameter: str, suffix: str = NPY_SUFFIX) -> str:
    """Return the name of the file with the signs of a parameter.

    It is the name of the parameter with characters that file names cannot have as ``%2F``. A name that is too
    long is cut and ends with a hash of the whole.
    """
    stem = _UNSAFE_CHARACTERS.sub(_escape_character, parameter)
    if len(f"{stem}{suffix}".encode()) > MAX_NAME_BYTES:
        digest = hashlib.sha256(stem.encode()).hexdigest()[:16]
        start = stem.encode()[: MAX_NAME_BYTES - len(digest) - len(suffix) - 1].decode(errors="ignore")
        stem = f"{start}~{digest}"
    return f"{stem}{suffix}"


def _escape_character(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def parse_number(pattern: re.Pattern[str], name: str) -> int | None:
    """Return the step or rank in the name of a file or directory; None if the pattern does not match it."""
    match = pattern.fullmatch(name)
    return int(match[1]) if match else None
