"""The hook of probe-recording, for tasks of the debugger that plugins provide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.plugins.hookspecs import hookspec

if TYPE_CHECKING:
    from probe_recording.specs import TaskSpec

KINDS = {"tasks": "probe_recording.specs:TaskSpec"}
TRIALS = {"tasks": "probe_recording.specs:check_task"}


@hookspec
def probe_tasks() -> list[TaskSpec]:  # type: ignore[empty-body]
    """Return tasks that a config.json may name. Called when it names none of the recorder's own tasks.

    Example::

        return [TaskSpec("zero_count", "counts zeros in gradients", "my_package.zeros:new_recorder",
                         frameworks=("pytorch",), fields=("threshold",), settings="my_package.zeros:parse")]
    """
