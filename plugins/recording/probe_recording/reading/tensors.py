"""The tensors of a run: in files of their own or in the packed file, on this machine or elsewhere."""

from __future__ import annotations

import errno
import shutil
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.files.atomic import private_directory
from probe_core.files.location import is_remote
from probe_core.model import Value
from probe_core.store.files import JOURNAL_FILE, PACKED_FILE
from probe_recording.reading.packed import PackedTensors, place_in


class TensorLoader(Protocol):
    """Reads one tensor file into an array without running anything the file contains."""

    def __call__(self, path: str, /) -> np.ndarray[Any, Any]:
        """The tensor in ``path``; raises UnreadableTensor."""


class Tensors:
    """The tensor files in a directory of this machine."""

    def __init__(self, directory: Path, load: TensorLoader) -> None:
        self._directory = str(directory)
        self._load = load
        self._packed = PackedTensors.find(directory)

    def __call__(self, value: Value) -> np.ndarray[Any, Any]:
        """The data of a tensor value, mapped and not copied where the file allows it.

        It is read from the packed file where that holds it, by the file's name without its suffix, else from
        a file of its own.

        Raises:
            UnreadableTensor: no such file, or a file that is not what it claims.
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
        """Let the packed file go; tensors handed out stay readable."""
        self._packed = None


class RemoteTensors(Tensors):
    """Tensor files elsewhere: each is fetched into a temporary file, which goes once it is mapped.

    The packed file is fetched whole, and stays until the run is closed.
    """

    def __init__(self, directory: Any, load: TensorLoader) -> None:
        self._remote = directory
        self._home = private_directory()
        self._forget = weakref.finalize(self, shutil.rmtree, self._home, ignore_errors=True)
        for name in (JOURNAL_FILE, PACKED_FILE):  # the journal first, as whoever reads them expects
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
            raise OSError(errno.EIO, str(error) or type(error).__name__) from None  # clients have their own
        return local

    def _read(self, name: str) -> np.ndarray[Any, Any]:
        local = self._fetch(name)
        try:
            return super()._read(name)
        finally:
            with suppress(OSError):  # a system that keeps mapped files removes them with the directory
                local.unlink()

    def close(self) -> None:
        """Let all fetched files go."""
        super().close()
        self._forget()


def tensors_in(directory: Path, load: TensorLoader) -> Tensors:
    """The tensors in ``directory``, wherever it lies."""
    return RemoteTensors(directory, load) if is_remote(directory) else Tensors(directory, load)
