"""The methods by which a framework completes the recorder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from probe_recording.capture.captures import ModuleHookInterface, NoModuleHooks
from probe_recording.capture.condition_capture import ConditionCapture
from probe_recording.run_directory.directory import StepDirectory
from probe_recording.run_directory.process import Process
from probe_recording.sessions.session import Session
from probe_recording.settings.config import Config

S = TypeVar("S", bound=Session)


class FrameworkRecorder(Process, ABC, Generic[S]):
    """A recorder of one process, as a framework sees it: its plugin overrides the methods below.

    Attributes:
        framework: The name of the framework.
        config: The settings of the recording.
    """

    framework = ""
    config: Config

    @abstractmethod
    def new_session(self, directory: StepDirectory, displayed_path: str) -> S:
        """Return a new session of this framework.

        Args:
            directory: The directory of the step.
            displayed_path: The path of the directory as the user wrote it, for the header of the run.
        """

    def new_modules(self) -> ModuleHookInterface[S]:
        """Return new hooks of modules."""
        return NoModuleHooks()

    def new_conditions(self) -> ConditionCapture:
        """Return a new capture of the conditions of steps."""
        return ConditionCapture()

    @property
    def versions(self) -> dict[str, str]:
        """Versions of the framework and its devices' packages, for the receiver of calls."""
        return {}

    @abstractmethod
    def register(self, holder: Any, attribute: str, name: str) -> None:
        """Start recording the calls of ``holder.attribute``, under ``name`` and a count."""

    @abstractmethod
    def restore(self, holder: Any, attribute: str) -> bool:
        """Stop recording the calls of ``holder.attribute``; return False if they were not recorded."""

    def _can_record(self) -> bool:
        """Return False, after a warning, if the program runs in a way that cannot be recorded."""
        return True

    def _hook_calls(self, model: Any, before: Callable[..., None]) -> Any:
        """Install a hook before each forward of the model; return a handle with a method ``remove``."""
        return model.register_forward_pre_hook(before)

    def _has_compiled_code(self) -> bool:
        """Return True if the program compiled code, inside which the recorder may see no calls."""
        return False

    def _handle_closed_step(self, session: S) -> None:
        """Use the complete files of a step; called after each step."""
