"""The kinds of programs, by their command lines."""

from __future__ import annotations

import pytest
from probe_recording.process_start.program import ProgramKind, find_kind

SPAWN = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)"
KINDS = {
    ProgramKind.USER: [
        ["train.py"], ["-m", "train"], ["-c", "import torch"], [], ["-"], ["-X", "dev", "-W", "ignore", "train.py"],
        ["-u", "-m", "torch.distributed.run", "train.py"], ["-Wonce", "tools/probe.py"], ["-i"],
        ["/bin/torchrun", "train.py"], ["train.py", "-m", "pip"], ["--check-hash-based-pycs", "never", "train.py"],
    ],
    ProgramKind.OWN: [
        ["/env/bin/probe", "compare"], ["-m", "probe_core.cli", "run"], ["-um", "probe_core"], ["-mprobe_core.cli"],
    ],
    ProgramKind.HELPER: [
        ["-m", "pip", "install"], ["/env/bin/pip"], ["-c", "from multiprocessing.resource_tracker import main;main(5)"],
        ["-X", "frozen_modules=off", "-s", "-c", "from multiprocessing.resource_tracker import main"],
        ["/env/torch/_inductor/compile_worker/__main__.py", "--pickler=x"], ["-m", "torch._inductor.compile_worker"],
    ],
    ProgramKind.CHILD: [
        ["-c", SPAWN, "--multiprocessing-fork"], ["-Ic", SPAWN], ["-c", "from multiprocessing.forkserver import main"],
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_find_kind_reads_the_command_line(kind: ProgramKind) -> None:
    for arguments in KINDS[kind]:
        assert find_kind(["python", *arguments]) is kind, arguments
