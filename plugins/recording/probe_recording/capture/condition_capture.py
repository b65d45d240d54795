"""Recording of the conditions of steps, for all frameworks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from probe_recording.capture.captures import Capture
from probe_recording.sessions.session import Session
from probe_recording.step_facts.conditions import Conditions, Fact, RandomSample, hash_host_states
from probe_recording.step_facts.environment import (
    GIT_TIMEOUT_SECONDS,
    load_source,
    read_processor,
    read_variables,
    read_versions,
)


class ConditionCapture(Capture[Session]):
    """A capture of the conditions of each step; subclasses add what their framework knows.

    Errors are written to the error log of the step and do not reach the program.

    Attributes:
        session: The session of the step; None between steps.
    """

    def __init__(self) -> None:
        self.session: Session | None = None
        self._processor: dict[str, Fact] = {}
        self._has_forward = False

    # -- to be overridden for a framework -------------------------------------------------

    def read_versions(self) -> dict[str, Fact]:
        """Return the versions of the framework's own libraries and drivers."""
        return {}

    def read_devices(self) -> dict[str, Fact]:
        """Return the names of the devices that the program uses."""
        return {}

    def read_numerics(self) -> dict[str, Fact]:
        """Return the framework's settings that may change numbers."""
        return {}

    def read_model_settings(self, model: Any) -> dict[str, Fact]:
        """Return the settings of a model that may change numbers."""
        return {"training": getattr(model, "training", None)}

    def read_layout(self) -> dict[str, Fact]:
        """Return the layout of the processes of the run."""
        return {}

    def hash_states(self) -> dict[str, str]:
        """Return the hash of the state of each of the framework's generators."""
        return {}

    def collect_seeds(self) -> dict[str, int]:
        """Return the random seed that was set last, of each of the framework's generators that reports it."""
        return {}

    def read_data_position(self) -> dict[str, Fact]:
        """Return the position of the program in its data."""
        return {}

    def hash_batch(self, conditions: Conditions, args: Any, kwargs: Any) -> None:
        """Add a hash of each tensor that a model receives."""

    def quiet(self) -> AbstractContextManager[Any]:
        """Return a context inside which no computation is recorded, for uses without a session."""
        return nullcontext()

    # -- as a capture of a recorder ------------------------------------------------------------

    def install(self, session: Session, model: Any) -> None:
        """Do nothing; frameworks may observe the calls of the model."""

    def remove(self) -> None:
        """Do nothing."""

    # -- points of a step ------------------------------------------------------------------

    def begin(self, session: Session) -> None:
        """Begin a step, which is recorded into a new session."""
        session.conditions = Conditions()
        self.session, self._has_forward = session, False
        self._run_guarded("start", self.record_start)

    def record_first_call(self, model: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Record what holds when the first model of the step is called, and the batch that it receives."""
        session = self.session
        if session is None or not session.active or self._has_forward:
            return
        self._has_forward = True

        self._run_guarded("forward", lambda conditions: self.record_model_call(conditions, model, args, kwargs))

    def end(self) -> None:
        """Record the states at the end of the step, and what is known of the program by then."""
        self._run_guarded("end", self.record_end)
        self.session = None

    # -- what is recorded at each point; also for uses without a session --------------------

    def record_start(self, conditions: Conditions) -> None:
        """Record what holds at the start of a step."""
        conditions.add_facts("numerics", self.read_numerics())
        conditions.add_facts("environment", read_variables())
        self._sample(conditions, "start")

    def record_model_call(self, conditions: Conditions, model: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Record what holds when a model is called, and the batch that it receives."""
        self._sample(conditions, "forward")
        conditions.add_facts("numerics", {**self.read_numerics(), **self.read_model_settings(model)})
        conditions.add_facts("data", self.read_data_position())
        self.hash_batch(conditions, args, kwargs)

    def record_end(self, conditions: Conditions) -> None:
        """Record the states at the end of a step, and what is known of the program by then."""
        self._sample(conditions, "end")
        self.record_program(conditions)

    def record_program(self, conditions: Conditions) -> None:
        """Record what is known of the program: versions, devices, layout and source."""
        self._processor = self._processor or read_processor()
        conditions.add_facts("versions", {**read_versions(), **self.read_versions()})
        conditions.add_facts("devices", {**self._processor, **self.read_devices()})
        conditions.add_facts("layout", {**_read_launcher_sizes(), **self.read_layout()})
        conditions.add_facts("source", load_source().read_facts(GIT_TIMEOUT_SECONDS))

    def _sample(self, conditions: Conditions, point: str) -> None:
        conditions.add_sample(RandomSample(point, {**hash_host_states(), **self.hash_states()}, self.collect_seeds()))

    def _run_guarded(self, point: str, record: Callable[[Conditions], None]) -> None:
        session = self.session
        if session is None or session.conditions is None:
            return
        try:
            with session.quiet(), session.lock:
                record(session.conditions)
        except Exception as error:  # the program must go on whatever the recorder's error
            session.log_failure("conditions", point, error)


def new_condition_capture(framework: str) -> ConditionCapture:
    """Return the capture of a framework; one that knows no framework if no installed plugin offers it."""
    from probe_recording.installed import find_spec  # loads the plugins
    from probe_recording.specs import CaptureSpec

    spec = find_spec("condition_captures", CaptureSpec, framework)
    if spec is None:
        return ConditionCapture()
    capture = spec.load()
    assert isinstance(capture, ConditionCapture)
    return capture


def _read_launcher_sizes() -> dict[str, Fact]:
    """Return the numbers of processes that a launcher set; a program that runs alone has a single one."""
    names = {"WORLD_SIZE": "world_size", "LOCAL_WORLD_SIZE": "processes_per_node", "RANK_SIZE": "world_size"}
    texts = {key: text for name, key in names.items() if (text := os.environ.get(name, "")).isdecimal()}
    return {"world_size": 1, **{key: int(text) for key, text in texts.items()}}
