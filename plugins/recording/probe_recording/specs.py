"""The specs of this kit's hooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from probe_core.plugins.blame import blame_plugin
from probe_core.plugins.specs import ImportedSpec, Spec, import_address
from probe_recording.fields import Fields


@dataclass(frozen=True, slots=True)
class DumperSpec(ImportedSpec):
    """A recorder of runs, which scripts import: its framework, levels and tasks."""

    framework: str = ""
    levels: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()


class DeferredSpec(Spec):
    """A contribution whose factory is called only while a program is recorded.

    The arguments of the factory are ``values``, which are empty in a check of the plugins.
    """

    __slots__ = ()

    def make(self) -> Any:
        """Import the factory, and call it if its arguments are set.

        Raises:
            PluginError: The plugin raised an exception.
        """
        if self.values:
            return Spec.make(self)
        with blame_plugin(self.title, self.origin):
            return import_address(self.factory) if isinstance(self.factory, str) else self.factory


@dataclass(frozen=True, slots=True)
class TaskSpec(DeferredSpec):
    """A task of the debugger (the factory makes a ``probe_recording.api.TaskRecorder``).

    The factory is called with the ``Config`` and the name of the framework. It should import the framework
    only then.

    Attributes:
        frameworks: The frameworks whose debuggers offer the task.
        fields: The fields of the task's section in config.json.
        settings: The address of a function that receives the section as ``probe_recording.api.Fields``, and
            returns ``Config.settings``, an object that can be compared.
    """

    frameworks: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    settings: str = ""

    def parse(self, section: Fields) -> Any:
        """Return the settings in the section of the task.

        Raises:
            UserError: A field has a wrong value.
        """
        return import_address(self.settings)(section)


def check_task(spec: TaskSpec) -> None:
    """Raise TypeError if a task is not complete; its factory is not called, because it needs a framework."""
    if not spec.frameworks or not spec.settings:
        raise TypeError("a task needs frameworks, and the address of a function that parses its section")
    parse: Any = import_address(spec.settings)
    if not callable(parse):
        raise TypeError(f"{spec.settings} is not a function")


@dataclass(frozen=True, slots=True)
class InterceptorSpec(DeferredSpec):
    """An interceptor of API calls (the factory makes a ``probe_recording.api.CallInterceptor``).

    The factory is called with the ``Config``. It should import the framework only then.

    Attributes:
        framework: The framework whose calls it intercepts.
    """

    framework: str = ""


@dataclass(frozen=True, slots=True)
class CaptureSpec(DeferredSpec):
    """A capture of conditions (the factory makes a ``probe_recording.api.ConditionCapture``).

    The factory is called without arguments. It should import the framework only then.

    Attributes:
        framework: The framework whose conditions it captures.
    """

    framework: str = ""

    def load(self) -> Any:
        """Import the factory, call it, and return the capture.

        Raises:
            PluginError: The plugin raised an exception.
        """
        with blame_plugin(self.title, self.origin):
            factory: Any = self.make()
            return factory()


@dataclass(frozen=True, slots=True)
class RecorderSpec(DeferredSpec):
    """A recorder of a framework (the factory makes a ``probe_recording.api.Recorder``).

    The factory is called with the ``Config`` and ``finds_models=True``, so that the modules of models that are
    called are recorded although ``start`` is given none. It should import the framework only then.

    Attributes:
        framework: The framework that it records.
    """

    framework: str = ""


def check_framework(spec: InterceptorSpec | CaptureSpec | RecorderSpec) -> None:
    """Raise TypeError if a contribution names no framework."""
    if not spec.framework:
        raise TypeError("it needs the name of its framework")
