"""What the debuggers of all frameworks share: what a script says to record itself (spec/dump 3, 4)."""

from __future__ import annotations

import atexit
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

from probe_core.errors import UserError, printable
from probe_recording.config import Config, ConfigWarning, load_config
from probe_recording.interface import of_the_process, parse_token_range
from probe_recording.recorder import Recorder

R = TypeVar("R", bound=Recorder[Any])
M = TypeVar("M")
D = TypeVar("D", bound="Debugger[Any, Any]")


_NO_SETTINGS = ("path", "shown_path", "enabled")
"""Fields of a configuration in which equal ones may differ: where they are written, and what may change."""


class Debugger(ABC, Generic[R, M]):
    """One debugger of a framework in a process; a framework says how its recorder is made, and its words.

    Attributes:
        kind_of_module: The class of the framework's modules.
        shown_kind: Its full name.
        noun: What such a module is called.
        variable: What the model is called in an example.
    """

    kind_of_module: type[M]
    shown_kind: str
    noun: str
    variable: str

    _instance: Any = None
    _recorder: R
    _settings: Config

    def __new__(cls: type[D], *args: Any, **kwargs: Any) -> D:
        """The debugger of this process."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        found: D = cls._instance
        return found

    def __init__(
        self,
        config_path: str | Path | None = None,
        task: str | None = None,
        dump_path: str | Path | None = None,
        level: str | None = None,
        model: M | Sequence[M] | None = None,
        step: list[int | str] | None = None,
    ) -> None:
        given = (config_path, task, dump_path, level, step)
        if hasattr(self, "_recorder"):
            if any(value is not None for value in given):
                self._refuse_others(self._config(*given))
            if model is not None:
                self._model = self._checked(model)
            return
        try:
            config = self._config(*given)
            self._settings = config
            self._recorder = self._new_recorder(config)
            self._model = self._checked(model)
        except UserError as error:
            type(self)._instance = None
            raise error.with_traceback(None) from None  # the script's line and the sentence say it all
        except BaseException:
            type(self)._instance = None
            raise
        atexit.register(self._recorder.finish)
        self._constructed()

    def _config(
        self,
        config_path: str | Path | None,
        task: str | None,
        dump_path: str | Path | None,
        level: str | None,
        step: list[int | str] | None,
    ) -> Config:
        path = os.fspath(dump_path) if dump_path is not None else None
        return load_config(config_path, task=task, dump_path=path, level=level, step=step)

    def _refuse_others(self, config: Config) -> None:
        """Raise a UserError where ``config`` records something else than this debugger does."""
        for name in (field.name for field in fields(config)):
            before, now = getattr(self._settings, name), getattr(config, name)
            if before != now and name not in _NO_SETTINGS:
                raise UserError(
                    f"This process has a PrecisionDebugger with other settings: {name} is {_shown(before)} "
                    f"there and {_shown(now)} here; one process records one run.",
                    "Construct it once, or with the same settings each time.",
                )

    # -- what a framework says -------------------------------------------------------------

    @abstractmethod
    def _new_recorder(self, config: Config) -> R:
        """The recorder of this framework."""

    def _constructed(self) -> None:
        """Whatever else begins with the debugger."""

    # -- the life of a step ----------------------------------------------------------------

    @of_the_process
    def start(self, model: M | Sequence[M] | None = None, token_range: Sequence[int] | None = None) -> None:
        """Begin to record, if the current step and rank are selected.

        Args:
            model: The model or models whose modules are recorded, for levels L0 and mix.
            token_range: First and last token, counted by the model's own forwards, to record of a
                generation.
        """
        self._start(model, token_range)

    def _start(self, model: M | Sequence[M] | None, token_range: Sequence[int] | None) -> None:
        """Begin to record; a warning names the line that called ``start``."""
        if model is not None:
            self._model = self._checked(model)
        config = self._recorder.config
        if config.modules and self._model is None:
            raise UserError(
                f'start() needs the model at level "{config.level}".',
                f"Write debugger.start(model={self.variable}).",
            )
        if config.dataloader:
            warnings.warn("start is left to enable_dataloader", ConfigWarning, stacklevel=3)
            return
        self._recorder.start(self._model, parse_token_range(token_range))

    @of_the_process
    def stop(self) -> None:
        """Cease to record, and write what was recorded; start may follow within the same step."""
        if not self._recorder.config.dataloader:
            self._recorder.stop()

    @of_the_process
    def forward_backward_dump_end(self) -> None:
        """The same as ``stop``, under the name that older scripts use."""
        self.stop()

    @of_the_process
    def step(self) -> None:
        """End the step: counts begin anew, and the next start has a directory of its own."""
        if not self._recorder.config.dataloader:
            self._recorder.step()

    @of_the_process
    def set_init_step(self, step: int) -> None:
        """Number the current step ``step``, as when training is resumed."""
        if type(step) is not int or step < 0:
            raise UserError(f"set_init_step needs a whole number from 0 on, not {step!r:.40}.", "Change it.")
        self._recorder.set_step(step)

    def __enter__(self: D) -> D:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.step()

    # -- single values and modules -----------------------------------------------------------

    @of_the_process
    def save(self, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record a variable, at level debug: a tensor, a number, a text, or lists and dicts of them.

        Args:
            variable: What to record. Start and stop are not needed.
            name: Its name; a second one of the same name in a step is counted.
            save_backward: Record the gradient of its tensors too, when it arrives.
        """
        if not isinstance(name, str) or not name:
            raise UserError("save needs a name that is not empty.", 'Write debugger.save(x, "x").')
        self._recorder.save(variable, name, save_backward)

    @of_the_process
    def module_dump(self, module: M, dump_name: str) -> None:
        """Record what one module takes in and gives out, and nothing inside it, until ``module_dump_end``."""
        if not isinstance(module, self.kind_of_module):
            raise UserError(f"module_dump needs a {self.shown_kind}.", f"Pass the {self.noun} itself.")
        if not isinstance(dump_name, str) or not dump_name:
            raise UserError("module_dump needs a name that is not empty.", "Pass a name.")
        self._recorder.module_dump(module, dump_name)

    @of_the_process
    def module_dump_end(self) -> None:
        """End what ``module_dump`` began."""
        self._recorder.module_dump_end()

    def _checked(self, model: Any) -> M | Sequence[M] | None:
        """``model``, if it is a module, a list of them, or none."""
        kind = self.kind_of_module
        if model is None or isinstance(model, kind):
            return model
        if isinstance(model, (list, tuple)) and model and all(isinstance(item, kind) for item in model):
            return model
        raise UserError(
            f"model must be a {self.shown_kind} or a list of them, not {type(model).__name__}.",
            f"Write debugger.start(model={self.variable}).",
        )

    # -- functions of the user's -------------------------------------------------------------

    @of_the_process
    def register_custom_api(self, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Record calls of a function of yours, at levels L1 and mix.

        Args:
            module: The module or class that the function stands in.
            api: Its name there.
            api_prefix: What its records are called by; the module's name without one.
        """
        if not isinstance(api, str) or not callable(getattr(module, api, None)):
            raise UserError(f"{module!r:.80} has no function called {api!r:.40}.", "Check the name.")
        prefix = api_prefix or str(getattr(module, "__name__", type(module).__name__))
        self._recorder.register(module, api, f"{prefix}.{api}")

    @of_the_process
    def restore_custom_api(self, module: Any, api: str) -> None:
        """Record the function no longer."""
        if not self._recorder.restore(module, api):
            warnings.warn(f"{api} was not registered; nothing is restored", ConfigWarning, stacklevel=2)


def _shown(value: Any) -> str:
    """Return a setting as a message shows it."""
    value = sorted(value) if isinstance(value, frozenset) else value
    return printable(str(value) if isinstance(value, Path) else repr(value), 120)
