"""Hooks of probe-legacy: readers of the older tools' files."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import ReaderSpec

FILES = (".pkl",)


@hookimpl
def probe_readers() -> list[ReaderSpec]:
    """Return the readers of both tools."""
    return [
        ReaderSpec(
            "ptdbg",
            "dumps of ptdbg_ascend 1.0 to 6.0: text files called .pkl",
            "probe_legacy.reading.reader:PtdbgReader",
            framework="pytorch",
            record_files=FILES,
            framework_frames=("ptdbg_ascend/",),
        ),
        ReaderSpec(
            "hooks",
            "dumps of torch_npu.hooks 3.0.rc3 to 5.0: text files called .pkl",
            "probe_legacy.reading.reader:HooksReader",
            framework="pytorch",
            record_files=FILES,
            framework_frames=("torch_npu/hooks/",),
        ),
    ]
