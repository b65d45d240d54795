"""Access to the tensors of a run, in single files or in the packed file, local or remote."""

from __future__ import annotations

import errno
import shutil
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.files.atomic import create_private_directory
from probe_core.files.location import is_remote
from probe_core.model import Value
from probe_recording.file_names import JOURNAL_FILE, PACKED_FILE
from probe_recording.reading.packed import PackedTensors, place_in


class TensorLoader(Protocol):
    """A function that reads one tensor file without running anything that the file contains."""

    def __call__(self, path: str, /) -> np.ndarray[Any, Any]:
        """Return the tensor in ``path``.

        Raises:
            UnreadableTensor: The file is damaged.
            FileNotFoundError: There is no such file.
        """


class Tensors:
    """The tensors in a local directory.

    Args:
        directory: The directory.
        load: The reader of single tensor files.
    """

    def __init__(self, directory: Path, load: TensorLoader) -> None:
        self._directory = str(directory)
        self._load = load
        self._packed = PackedTensors.find(directory)

    def __call__(self, value: Value) -> np.ndarray[Any, Any]:
        """Return the data of a tensor value, memory-mapped if the file allows it.

        The packed file is tried first, with the ``data_name`` without its suffix, then a file of that name.

        Raises:
            UnreadableTensor: There is no such tensor, or its file is damaged.
        """
        name = value.data_name
        assert name is not None
        packed = self._packed
        if packed is not None and (entry := name.rpartition(".")[0]) in packed:
            return packed.load(entry)
        try:
            return self._read(name)
        except FileNotFoundError:
            if packed is None:
                raise UnreadableTensor(f"there is no {name}", missing=True) from None
            if packed.problem is not None:
                raise UnreadableTensor(packed.problem) from None
            raise UnreadableTensor(f"there is no {name}, and none in {PACKED_FILE}", missing=True) from None
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            message = getattr(error, "strerror", None) or "no file can have this name"
            raise UnreadableTensor(f"{name}: {message}") from None

    def _read(self, name: str) -> np.ndarray[Any, Any]:
        return self._load(place_in(self._directory, name))

    def close(self) -> None:
        """Close the packed file; tensors handed out stay readable."""
        self._packed = None


class RemoteTensors(Tensors):
    """The tensors in a remote directory, each fetched into a temporary file when it is read.

    The packed file is fetched as a whole when this object is made, and removed when it is closed. A single
    file is removed as soon as it is mapped.
    """

    def __init__(self, directory: Any, load: TensorLoader) -> None:
        self._remote = directory
        self._home = create_private_directory()
        self._forget = weakref.finalize(self, shutil.rmtree, self._home, ignore_errors=True)
        for name in (JOURNAL_FILE, PACKED_FILE):  # the journal first: the file must hold all it lists
            with suppress(FileNotFoundError):
                self._fetch(name)
        super().__init__(self._home, load)

    def _fetch(self, name: str) -> Path:
        local = self._home / name
        source = self._remote / name
        try:
            source.fs.get_file(source.path, str(local))
        except BaseException as error:
            local.unlink(missing_ok=True)
            if isinstance(error, OSError) or not isinstance(error, Exception):
                raise
            # clients of remote file systems raise exceptions of their own
            raise OSError(errno.EIO, str(error) or type(error).__name__) from None
        return local

    def _read(self, name: str) -> np.ndarray[Any, Any]:
        local = self._fetch(name)
        try:
            return super()._read(name)
        finally:
            with suppress(OSError):  # systems that cannot remove mapped files remove them with the directory
                local.unlink()

    def close(self) -> None:
        """Remove all fetched files."""
        super().close()
        self._forget()


def open_tensors(directory: Path, load: TensorLoader) -> Tensors:
    """Return the tensors in a local or remote directory."""
    return RemoteTensors(directory, load) if is_remote(directory) else Tensors(directory, load)
