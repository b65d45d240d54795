"""Limits of the memory that the calls of a pre-check may use (docs/precheck.md#memory).

All limits are shares of the machine's memory, or of the memory that the control group of the process may use.
"""

from __future__ import annotations

import os
from pathlib import Path

INPUT_SHARE = 1 / 4
"""Share of the memory for the recorded tensors of one call. Each side needs a copy of them."""

CALL_SHARE = 2 / 5
"""Share of the memory for everything that one call needs: inputs, copies, results, gradients, the reference.

It is less than half, so that files and other programs can use as much memory as a call.
"""

PROCESS_SHARE = 1 / 2
"""Share of the memory that a worker process may allocate after its start.

It is larger than ``CALL_SHARE``, because a call also needs memory that the estimate does not count, such as
buffers of kernels and memory that the allocator caches.
"""

ASSUMED_MEMORY_BYTES = 16 << 30
"""Memory of a machine whose system does not report it."""

CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with the memory limit of the control group, of version 2 and version 1 of the interface."""

OUT_OF_MEMORY_TEXT = "There is not enough memory to run it. SKIP."


def get_machine_bytes() -> int:
    """Return the size of the memory that processes on this machine, or in this container, may use."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        memory = ASSUMED_MEMORY_BYTES
    for path in CGROUP_LIMITS:
        try:
            memory = min(memory, int(Path(path).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return memory


def get_max_input_bytes() -> int:
    """Return the number of bytes that the recorded tensors of one call may take."""
    return int(get_machine_bytes() * INPUT_SHARE)


def get_max_call_bytes() -> int:
    """Return the number of bytes that one call may need, from its inputs to the outputs of both sides."""
    return int(get_machine_bytes() * CALL_SHARE)


def limit_process() -> None:
    """Limit the memory that this process may still allocate, so that larger allocations fail.

    The limit is that of the data segment (``RLIMIT_DATA``), which counts private writable memory only. A
    limit of the address space would also count the ranges that the drivers of CUDA and CANN reserve without
    using them, and would stop these drivers.

    Call this after libraries and devices are initialized. It does nothing on systems without ``/proc``.
    """
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[5])
    except (ImportError, OSError, ValueError, IndexError):
        return
    limit = pages * os.sysconf("SC_PAGE_SIZE") + int(get_machine_bytes() * PROCESS_SHARE)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit, *(value for value in (soft, hard) if value != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
