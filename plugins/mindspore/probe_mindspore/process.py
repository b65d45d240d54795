"""The process of a MindSpore program."""

from __future__ import annotations

from mindspore import communication
from probe_recording.api import Process


class MindSporeProcess(Process):
    """The rank of a MindSpore process, from its default communication group."""

    rank_variable = "RANK_ID"
    size_variable = "RANK_SIZE"

    def _group(self) -> tuple[int, int] | None:
        if not communication.GlobalComm.INITED:
            return None
        return int(communication.get_rank()), int(communication.get_group_size())
