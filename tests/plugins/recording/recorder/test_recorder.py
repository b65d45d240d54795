"""Recorders in forked children."""

from __future__ import annotations

import os

from probe_recording.recorder.recorder import abandon_in_children


class Recorder:
    """A recorder that notes whether it was abandoned."""

    reports_missing = True
    is_abandoned = False

    def abandon(self) -> None:
        self.is_abandoned = True


def test_a_forked_child_abandons_its_copy_only() -> None:
    recorder = Recorder()
    abandon_in_children(recorder)
    child = os.fork()
    if child == 0:
        os._exit(0 if recorder.is_abandoned and not recorder.reports_missing else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not recorder.is_abandoned and recorder.reports_missing
