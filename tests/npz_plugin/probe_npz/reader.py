"""The reader of npz runs, imported when a run is opened.

``manifest.json`` lists the calls in order, each with the file that ``numpy.savez`` wrote for it::

    {"framework": "jax", "calls": [{"name": "dot", "phase": "forward", "file": "0.npz",
                                    "inputs": ["x", "w"], "outputs": ["y"]}]}
"""

import json
from collections import Counter

import numpy as np
from probe_matching.api import Dialect, NameTable

from probe_core.errors import UnreadableTensor, UserError
from probe_core.model import Kind, Mode, Record, Side, Slot, Statistics, Value
from probe_core.model.run import Header, HeldRun

NAMES = {"Jax.dot": "Torch.matmul", "Jax.exp": "Torch.exp", "Jax.relu": "Functional.relu"}
"""APIs of JAX, and their names in PyTorch."""


def names():
    """Return the names of JAX and of PyTorch."""
    return NameTable(source=Dialect(apis=NAMES), target=Dialect())


class NpzReader:
    """Reader of directories with ``.npz`` files and a manifest."""

    def sniff(self, path):
        """Return 100 for a manifest.json that names JAX, 0 for any other file."""
        return 100 if path.name == "manifest.json" and '"jax"' in path.read_text("utf-8") else 0

    def open(self, path):
        """Return the run whose manifest is ``path``."""
        try:
            calls = json.loads(path.read_text("utf-8"))["calls"]
            counts = Counter()
            return NpzRun(path, [_record(path.parent, call, counts) for call in calls])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} cannot be read: {error!r}.", "Save the run again.") from error


class NpzRun(HeldRun):
    """A run recorded from JAX."""

    def __init__(self, path, records):
        super().__init__(path, Header("tensor", "L1", "jax"), Mode.TENSOR, _numbered(records))

    def tensor(self, value):
        """Return the data of a value."""
        file, _, name = value.data_name.partition(":")
        try:
            return _load(self.path.parent / file, name)
        except (OSError, ValueError, KeyError) as error:
            raise UnreadableTensor(f"{value.data_name}: {error}") from error


def _load(file, name):
    with np.load(file) as arrays:
        return arrays[name]


def _numbered(records):
    return [Record(index, key, slots) for index, (key, slots) in enumerate(records)]


def _record(directory, call, counts):
    """Return the key and the slots of one call; calls of one name and phase are numbered in order."""
    count = counts[call["name"], call["phase"]]
    counts[call["name"], call["phase"]] += 1
    key = f"Jax.{call['name']}.{count}.{call['phase']}"
    slots = tuple(
        Slot(f"{key}.{side.value}.{place}", side, str(place), _value(directory, call["file"], name))
        for side, names in ((Side.INPUT, call["inputs"]), (Side.OUTPUT, call["outputs"]))
        for place, name in enumerate(names)
    )
    return key, slots


def _value(directory, file, name):
    array = _load(directory / file, name)
    numbers = array.astype(np.float64)
    statistics = Statistics(
        float(numbers.max()), float(numbers.min()), float(numbers.mean()), float(np.linalg.norm(numbers))
    )
    extent = str(list(array.shape))
    name = f"{file}:{name}"
    return Value(Kind.TENSOR, array.dtype.name, extent, array.shape, statistics, data_name=name)
