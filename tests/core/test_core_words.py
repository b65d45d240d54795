"""The core names no framework and no plugin: they contribute what the core needs to know of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from probe_diagnosis.frames import find_own_frame
from probe_recording.reading.leaves import leaf_of

import probe_core
from probe_core.model.dtypes import get_dtype_kind, is_foreign_spelling, is_same_dtype
from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import ReaderSpec
from probe_core.store.frames import FRAMEWORK_FRAMES
from probe_core.testing import manager_of

FOREIGN = re.compile(r"torch|mindspore|msprobe|npu_|dask|cuda", re.IGNORECASE)
OF_FORMATS = re.compile(r"\bnpu_(json_)?path\b|\bNPU_Stack_Info\b")
"""The keys of the compare file, and a header of the guide's tables."""


def test_no_file_of_the_core_names_a_framework() -> None:
    files = sorted(Path(probe_core.__file__).parent.rglob("*.py"))
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if FOREIGN.search(OF_FORMATS.sub("", line))
    ]
    assert len(files) > 60 and found == []


@pytest.mark.parametrize("package", ["torch.", "mindspore.", "", "jax.numpy."])
def test_dtypes_of_any_framework(package: str) -> None:
    assert is_same_dtype(f"{package}bfloat16", "BFloat16") and get_dtype_kind(f"{package}uint8") == "int"
    assert is_foreign_spelling(f"{package}float32", "other.Float32")


def test_leaves_by_the_bare_name_of_their_type() -> None:
    for package in ("torch", "mine.core"):
        assert leaf_of({"type": f"{package}.Size", "value": [2, 3]}, "0").extent == "[2, 3]"
        assert leaf_of({"type": f"{package}.memory_format", "format": "dense"}, "0").statistics.max == "dense"


class _Hooks:
    __name__ = "hooks_of_mine"

    @hookimpl
    def probe_readers(self) -> list[ReaderSpec]:
        return [ReaderSpec("mine", "mine", dict, record_files=("calls.mine",), framework_frames=("-packages/mine/",))]


def test_a_plugin_contributes_its_files_and_frames() -> None:
    frames = ("File /x/site-packages/mine/nn.py, line 1", "File /home/train.py, line 2")
    assert find_own_frame(frames) == frames[0]
    manager = manager_of(mine=_Hooks())  # type: ignore[arg-type]
    assert manager.record_files() == (("dump.json", "debug.json"), ("calls.mine",))
    assert find_own_frame(frames) == frames[1]
    FRAMEWORK_FRAMES.discard("-packages/mine/")
