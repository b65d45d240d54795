"""The process of a MindSpore program."""

from __future__ import annotations

from mindspore import communication
from probe_recording.api import Process


class MindSporeProcess(Process):
    """A process that uses MindSpore: its rank in the default communication group."""

    rank_variable, size_variable = "RANK_ID", "RANK_SIZE"

    def _group(self) -> tuple[int, int] | None:
        if not communication.GlobalComm.INITED:
            return None
        return int(communication.get_rank()), int(communication.get_group_size())
