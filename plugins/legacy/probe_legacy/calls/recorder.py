"""Probe's recorder of PyTorch, asked for what the older tools recorded.

It records the same calls under the same numbers, and the gradients as they leave the node of a call's first
result, in the order of that node. Calls are counted from ``register_hook`` on, also while the switch is off.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from probe_pytorch.capture.call_recorder import TorchCallRecorder
from probe_pytorch.recorder import TorchRecorder
from probe_pytorch.session import TorchSession
from probe_recording.api import Config, stack_of
from probe_recording.capture.call_recorder import RunningCall
from probe_recording.capture.interceptors import ActiveSession
from probe_recording.capture.threads import Threads
from probe_recording.framework import StepDirectory

from probe_legacy.calls.selection import CallSelection, EarlySelection
from probe_legacy.calls.versions import Version

Counts = defaultdict[str, int]


def find_node(result: Any) -> Any:
    """Return the graph node of the first result of a call, as torch's hooks of modules find it; or None."""
    if isinstance(result, torch.Tensor):
        return result.grad_fn
    if isinstance(result, dict):
        result = [value for value in result.values() if isinstance(value, torch.Tensor)]
    return find_node(result[0]) if isinstance(result, (list, tuple)) and result else None


class NodeCalls(TorchCallRecorder):
    """A recorder of calls whose gradients are those of one node.

    Args:
        session: The session.
        threads: The state of the threads.
        tuples: A set for the names of the records whose result is a tuple of one.
        recurrent: The recurrent layers that are recorded.
    """

    def __init__(self, session: TorchSession, threads: Threads, tuples: set[str], recurrent: frozenset[str]) -> None:
        super().__init__(session, threads)
        self._tuples = tuples
        self._recurrent = recurrent
        self._recorded: set[str] = set()

    def begin(self, prefix: str, *args: Any, **kwargs: Any) -> RunningCall | None:
        """Record the inputs of a call; leave out a recurrent layer that the tool did not wrap."""
        if prefix.startswith("VF.") and prefix not in self._recurrent:
            return None
        return super().begin(prefix, *args, **kwargs)

    def end(self, call: RunningCall, result: Any, *, is_uninitialized: bool = False) -> None:
        """Record the outputs of a call, and register for the gradients of its node."""
        if isinstance(result, tuple) and len(result) == 1:
            self._tuples.add(f"{call.name}.forward")
        super().end(call, result, is_uninitialized=is_uninitialized)

    def _take_sources(self, call: RunningCall, values: tuple[Any, ...]) -> None:
        """Note nothing: the node of the result is enough."""

    def _expect_gradients(self, call: RunningCall, outputs: tuple[Any, ...]) -> None:
        node = find_node(outputs)
        if node is not None:
            node.register_hook(partial(self._record_gradients, f"{call.name}.backward"))

    def _record_gradients(self, key: str, gradients: tuple[Any, ...], incoming: tuple[Any, ...]) -> None:
        """Record the gradients that came to a node and those that it passed on."""
        session = self.session
        if not session.active or key in self._recorded or not session.filter.is_api_selected(key):
            return
        self._recorded.add(key)
        try:
            fields: dict[str, Any] = {}
            with session.quiet():
                save = session.save_for(key, True)
                for side, values in (("input", incoming), ("output", gradients)):
                    if session.wants("backward", side):
                        fields[side] = session.collector.arguments(values, f"{key}.{side}", save)
            stack = stack_of(sys._getframe(1)) if session.config.extra_info else None
            session.add(key, fields, stack)
        except Exception as error:  # the training must go on whatever the recorder's error
            session.log_failure("backward", key, error)


class CallCounter(TorchCallRecorder):
    """A counter of calls, in place of their recorder while nothing is recorded."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self.session = cast(TorchSession, ActiveSession())

    def record(
        self, prefix: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        *_: Any, **__: Any,
    ) -> Any:  # fmt: skip
        """Run ``function`` and count the call."""
        self._counts[prefix] += 1
        return function(*args, **kwargs)

    def note_allocation(self, name: str, tensor: Any) -> None:
        """Ignore memory without values, of which nothing is recorded."""

    def begin(self, prefix: str, *_: Any, **__: Any) -> None:
        """Count a call."""
        self._counts[prefix] += 1


class OldRecorder(TorchRecorder):
    """A recorder for the formats of an older tool.

    Args:
        version: The version of the tool.
        scratch: The directory for probe's own files while they are being recorded.
        operators: The list of operators to record.

    Attributes:
        tuples: The names of the records whose result is a tuple of one.
        calls: The recorder of calls; None before the first start.
    """

    def __init__(self, version: Version, scratch: Path, operators: Path) -> None:
        config = Config(dump_path=scratch, wrap_ops=operators, step_phases=False, shown_path=str(scratch))
        super().__init__(config, records_inside=version.records_inside, records_families=False)
        self.tuples: set[str] = set()
        self.calls: NodeCalls | None = None
        self._counts: Counts = defaultdict(int)
        self._selection = CallSelection(version)
        self._recurrent = version.recurrent

    @property
    def directory(self) -> Path:
        """The directory of probe's files of the current period."""
        return self.config.dump_path / f"step{self._step}" / self.label

    def begin(self, model: Any, selection: CallSelection, config: Config) -> None:
        """Record what ``selection`` takes, from now on."""
        self._selection, self.config = selection, config
        self.tuples.clear()
        self.start(model, None)

    def rest(self) -> None:
        """Count calls and record nothing; a period that was under way must have ended by ``step``."""
        self.calls = None
        self._calls.receive(CallCounter(self._counts))

    def check(self, calls: Callable[[Threads], TorchCallRecorder]) -> None:
        """Pass all calls to a capture of another kind."""
        self._calls.receive(calls(self._threads))

    def finish(self) -> None:
        """End the recording and remove everything that it installed."""
        super().finish()
        self._control.remove()

    def new_session(self, directory: StepDirectory, displayed_path: str) -> TorchSession:
        """Return a new session that goes on counting where the last one ended."""
        session = super().new_session(directory, displayed_path)
        session.calls = self._counts
        session.filter = cast(Any, EarlySelection(self._selection))
        return session

    def create_calls(self, session: TorchSession) -> TorchCallRecorder:
        """Return a new recorder of calls into a session."""
        self.calls = NodeCalls(session, self._threads, self.tuples, self._recurrent)
        return self.calls
