"""Hooks of probe-recording: recorders, tasks of the debugger, and what frameworks offer to other plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.plugins.hookspecs import hookspec

if TYPE_CHECKING:
    from probe_recording.specs import CaptureSpec, DumperSpec, InterceptorSpec, RecorderSpec, TaskSpec

KINDS = {
    "dumpers": "probe_recording.specs:DumperSpec",
    "tasks": "probe_recording.specs:TaskSpec",
    "interceptors": "probe_recording.specs:InterceptorSpec",
    "condition_captures": "probe_recording.specs:CaptureSpec",
    "recorders": "probe_recording.specs:RecorderSpec",
}
TRIALS = {
    "tasks": "probe_recording.specs:check_task",
    "interceptors": "probe_recording.specs:check_framework",
    "condition_captures": "probe_recording.specs:check_framework",
    "recorders": "probe_recording.specs:check_framework",
}


@hookspec
def probe_dumpers() -> list[DumperSpec]:  # type: ignore[empty-body]
    """Return recorders of runs. Called by ``probe plugins``; scripts import the recorder itself.

    Example::

        return [DumperSpec(name="mine", summary="records my framework", framework="mine",
                           levels=("L1",), tasks=("tensor",), factory="my_package:Debugger")]
    """


@hookspec
def probe_tasks() -> list[TaskSpec]:  # type: ignore[empty-body]
    """Return tasks that a config.json may name. Called when it names none of the recorder's own tasks.

    Example::

        return [TaskSpec("zero_count", "counts zeros in gradients", "my_package.zeros:new_recorder",
                         frameworks=("pytorch",), fields=("threshold",), settings="my_package.zeros:parse")]
    """


@hookspec
def probe_interceptors() -> list[InterceptorSpec]:  # type: ignore[empty-body]
    """Return interceptors of API calls, by which tasks such as ``free_benchmark`` observe single calls.

    Example::

        return [InterceptorSpec("mine", "intercepts calls of my framework", "my_package.calls:Interceptor",
                                framework="mine")]
    """


@hookspec
def probe_condition_captures() -> list[CaptureSpec]:  # type: ignore[empty-body]
    """Return captures of the conditions of a framework, such as its settings and random states.

    ``ConfigChecker`` of probe-check uses them.

    Example::

        return [CaptureSpec("mine", "notes the settings of my framework", "my_package.conditions:Capture",
                            framework="mine")]
    """


@hookspec
def probe_recorders() -> list[RecorderSpec]:  # type: ignore[empty-body]
    """Return recorders of a framework that other plugins may start, several in a process one after the other.

    ``probe_golden`` of pytest-probe uses them.

    Example::

        return [RecorderSpec("mine", "records my framework", "my_package.recorder:Recorder", framework="mine")]
    """
