"""What probe-mindspore contributes."""

from __future__ import annotations

from probe_core.hookspecs import hookimpl
from probe_core.specs import ReaderSpec


@hookimpl
def probe_readers() -> list[ReaderSpec]:
    """The reader of MindSpore runs."""
    return [
        ReaderSpec(
            name="mindspore",
            summary="dump.json with .npy files; recorder and pre-check are to come",
            framework="mindspore",
            factory="probe_mindspore.reader:MindSporeReader",
        )
    ]
