"""The PyTorch plugin of probe: recording, reading and pre-checking of PyTorch runs.

Reading and comparing runs never imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter
from probe_pytorch.compare import compare as compare
from probe_pytorch.compare import compare_distributed as compare_distributed

if TYPE_CHECKING:
    from probe_pytorch.debugger import PrecisionDebugger as PrecisionDebugger
    from probe_pytorch.debugger import module_dump as module_dump
    from probe_pytorch.debugger import module_dump_end as module_dump_end
    from probe_pytorch.dispatch_check.check import DispatchCheck as DispatchCheck
    from probe_pytorch.keeping.watch import Watch as Watch
    from probe_pytorch.keeping.watch import watch as watch
    from probe_pytorch.recorded_block import record as record
    from probe_pytorch.seeds import seed_all as seed_all

__getattr__ = create_exporter(
    __name__,
    {
        "compare": "compare compare_distributed",
        "debugger": "PrecisionDebugger module_dump module_dump_end",
        "dispatch_check.check": "DispatchCheck",
        "keeping.watch": "Watch watch",
        "recorded_block": "record",
        "seeds": "seed_all",
    },
)
