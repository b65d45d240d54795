"""Single tensors: read from a file, formatted as text, written as text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from probe_recording.api import load_npy

from probe_core.errors import UnreadableTensor, UserError
from probe_core.files.atomic import write_atomically
from probe_core.files.user_files import check_regular
from probe_core.flow.opening import open_run
from probe_core.plugins.manager import Manager

Array = np.ndarray[Any, Any]
RECORD_FILES = ("dump.json", "debug.json")
"""Names of record files, which list tensors and are in the directory above them."""
VALUES_PER_LINE, MAX_LINES = 8, 16
"""Limits of printed values: values per line, and lines."""
NUMBERS = "biufc"


def load(path: Path, manager: Manager) -> Array:
    """Return the tensor in a ``.npy`` file, or in a file of any format below a run.

    Raises:
        UserError: The file cannot be read, or does not hold numbers.
    """
    try:
        record = next((file for name in RECORD_FILES if (file := path.parent.parent / name).is_file()), None)
        if path.suffix == ".npy" and (path.exists() or record is None):
            check_regular(path)
            array = load_npy(path)
        else:  # a file of another format, or a tensor in the packed file of a run
            array = _read_from_run(path, record, manager)
    except (OSError, UnreadableTensor) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be read: {reason}.", "Give a .npy, or a tensor file of a run.") from None
    if array.dtype.kind not in NUMBERS and array.dtype.kind != "V":
        raise UserError(f"{path} holds {array.dtype}, no numbers.", "Give a tensor of numbers.")
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _read_from_run(path: Path, record: Path | None, manager: Manager) -> Array:
    """Return the tensor that a run lists under the name of a file, read by the reader of the run."""
    if record is None:
        raise UserError(
            f"{path} is no .npy file, and there is no dump.json in the directory above it.",
            "Give a .npy, or a file in dump_tensor_data of a run.",
        )
    with closing(open_run(manager, record)) as run:
        for call in run.records():
            for slot in call.slots:
                if slot.value.data_name == path.name:
                    return np.array(run.tensor(slot.value))
    raise UserError(f"{record} lists no tensor {path.name}.", "Give a file that it lists.")


def format_tensor(array: Array) -> Iterator[str]:
    """Yield lines that describe a tensor: its first values, then its shape and statistics."""
    flat = array.reshape(-1)[: VALUES_PER_LINE * MAX_LINES]
    yield "Index  Data"
    for begin in range(0, flat.size, VALUES_PER_LINE):
        yield f"{begin:<5}  {' '.join(map(str, flat[begin : begin + VALUES_PER_LINE]))}"
    yield format_statistics(array)


def format_statistics(array: Array) -> str:
    """Return the shape, dtype, maximum, minimum and mean of a tensor."""
    text = f"[Shape: {array.shape}] [Dtype: {array.dtype}]"
    if not array.size:
        return f"{text} [no values]"
    wide = np.complex128 if array.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        mean = array.mean(dtype=wide)
        if array.dtype.kind in "fc":
            mean = array.dtype.type(mean)
        return f"{text} [Max: {array.max()!s}] [Min: {array.min()!s}] [Mean: {mean!s}]"


def write_text(array: Array, path: Path) -> Path:
    """Write all values to ``path`` with ``.txt`` appended, unless this file exists, and return its path.

    Each line holds a row of the last dimension.

    Raises:
        UserError: The file cannot be written.
    """
    text = path.with_name(f"{path.name}.txt")
    if text.exists() or text.is_symlink():
        return text
    width = array.shape[-1] if array.ndim else 1
    rows = array.reshape(-1, width) if array.size else array.reshape(0, 1)
    with write_atomically(text, f"The file {text.name}") as temporary:
        np.savetxt(temporary, rows, fmt="%g")
    return text
