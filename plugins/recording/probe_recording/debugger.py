"""The base class of the debuggers by which scripts record themselves (docs/configuration.md#debugger)."""

from __future__ import annotations

import atexit
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

from probe_core.errors import UserError, make_printable
from probe_recording.messages import note
from probe_recording.recorder.interface import allow_class_call, check_rank_id, parse_token_range
from probe_recording.recorder.recorder import Recorder
from probe_recording.recorder.stages import StageRecorders, check_stage_support
from probe_recording.recorder.tasks import create_task_recorder
from probe_recording.run_directory.process import Process
from probe_recording.settings.config import Config, ConfigWarning, load_config
from probe_recording.settings.config_reload import WatchedConfig
from probe_recording.settings.slices import check_scheduled_tokens

R = TypeVar("R", bound=Recorder[Any])
M = TypeVar("M")
D = TypeVar("D", bound="Debugger[Any, Any]")


_UNCOMPARED_FIELDS = ("path", "shown_path", "enabled")
"""Fields that may differ between two configurations that record the same: the paths, and ``enabled``."""


class Debugger(ABC, Generic[R, M]):
    """The debugger of a process; subclasses supply the recorder and the words of their framework.

    There is one debugger in a process: constructing a second one with the same settings returns the first,
    with other settings it raises a UserError.

    Args:
        config_path: A ``config.json``; None for the defaults.
        task: Replaces ``task`` of the file.
        dump_path: Replaces ``dump_path`` of the file.
        level: Replaces ``level`` of the file.
        model: The model or models to record, if ``start`` is not given any.
        step: Replaces ``step`` of the file: numbers, and ranges such as ``"2-5"``.

    Attributes:
        framework: The name of the framework; empty if no plugin provides tasks for it.
        process: What the framework offers to tasks of plugins.
        kind_of_module: The class of the framework's modules.
        shown_kind: The full name of that class, for messages.
        noun: The framework's word for a module.
        variable: The usual name of a model's variable, for examples in messages.
    """

    framework: str = ""
    process: Process = Process()
    kind_of_module: type[M]
    shown_kind: str
    noun: str
    variable: str

    _instance: Any = None
    _recorder: R
    _settings: Config
    _reload: WatchedConfig | None = None
    _is_step_open = False
    _stages: StageRecorders[R]

    def __new__(cls: type[D], *args: Any, **kwargs: Any) -> D:
        """Return the debugger of this process, made on the first call."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        debugger: D = cls._instance
        return debugger

    def __init__(
        self,
        config_path: str | Path | None = None,
        task: str | None = None,
        dump_path: str | Path | None = None,
        level: str | None = None,
        model: M | Sequence[M] | None = None,
        step: list[int | str] | None = None,
    ) -> None:
        path = None if dump_path is None else os.fspath(dump_path)
        overrides = {"task": task, "dump_path": path, "level": level, "step": step}
        self._registered: list[tuple[Any, str, str]] = getattr(self, "_registered", [])
        if hasattr(self, "_recorder"):
            if any(value is not None for value in (config_path, *overrides.values())):
                self._refuse_others(load_config(config_path, **overrides))
            if model is not None:
                self._model = self._check_model(model)
            return
        self.process = type(self.process)()
        try:
            config = load_config(config_path, **overrides)
            self._settings = config
            check_stage_support(config, "The configuration")
            self._set_seed(config)
            self._recorder = self._create_recorder(config)
            self._stages = StageRecorders(self._recorder, self._new_stage_recorder)
            self._model = self._check_model(model)
        except UserError as error:
            type(self)._instance = None
            raise error.with_traceback(None) from None  # a user's mistake needs no frames of the recorder
        except BaseException:
            type(self)._instance = None
            raise
        atexit.register(self._recorder.finish)
        if config.path is not None and config.enabled is not None:
            self._reload = WatchedConfig(config, overrides)
        self._finish_construction()

    def _create_recorder(self, config: Config) -> R:
        plugin_recorder = create_task_recorder(config, self.framework, self.process)
        return self._new_recorder(config) if plugin_recorder is None else cast("R", plugin_recorder)

    def _refuse_others(self, config: Config) -> None:
        """Raise a UserError if ``config`` differs from the settings that this debugger was made with."""
        for name in (field.name for field in fields(config)):
            before, now = getattr(self._settings, name), getattr(config, name)
            if before != now and name not in _UNCOMPARED_FIELDS:
                raise UserError(
                    "This process already has a PrecisionDebugger with other settings, and a process records "
                    f"one run: {name} is {_format_setting(before)} there and {_format_setting(now)} here.",
                    "Construct it once, or with the same settings each time.",
                )

    # -- to be overridden for a framework -------------------------------------------------

    @abstractmethod
    def _new_recorder(self, config: Config) -> R:
        """Return a new recorder of this framework."""

    def _set_seed(self, config: Config) -> None:
        """Set the random seed and deterministic algorithms that the configuration states."""

    def _new_stage_recorder(self, config: Config) -> R:
        recorder = self._new_recorder(config)
        for holder, attribute, name in self._registered:
            recorder.register(holder, attribute, name)
        recorder.passed_rank = self.process.passed_rank
        atexit.register(recorder.finish)
        return recorder

    def _finish(self) -> None:
        """Complete the recordings of all stages."""
        for recorder in self._stages:
            recorder.finish()

    def _finish_construction(self) -> None:
        """Do whatever else the framework needs once, after the debugger is constructed."""

    # -- the life of a step ----------------------------------------------------------------

    @allow_class_call
    def start(
        self,
        model: M | Sequence[M] | None = None,
        token_range: Sequence[int] | None = None,
        rank_id: int | None = None,
        scheduled_tokens: Mapping[str, int] | None = None,
        *,
        stage: str | None = None,
    ) -> None:
        """Start recording, if the current step and rank are selected.

        Args:
            model: The model or models whose modules are recorded; required at levels L0 and mix.
            token_range: The first and last token of a generation to record, counted from 0 by the forwards
                of the model.
            rank_id: The rank of this process, for engines that do not use the framework's process group.
            scheduled_tokens: The number of rows of each request of the batch, in the order of the rows. Only
                the rows of ``request_id`` of the configuration are recorded; a batch without it is not recorded.
            stage: The part of the step, such as ``"actor"``, which is recorded into a directory of its own; None
                for the stage of the configuration. The recording of another stage is stopped.

        Raises:
            UserError: The model is missing, an argument is invalid, or the run cannot be written.
        """
        if rank_id is not None:
            self.process.passed_rank = check_rank_id(rank_id)
            for recorder in self._stages:
                recorder.passed_rank = rank_id
        tokens = None if scheduled_tokens is None else check_scheduled_tokens(scheduled_tokens)
        self._start(model, token_range, tokens, stage)

    def _start(
        self,
        model: M | Sequence[M] | None,
        token_range: Sequence[int] | None,
        scheduled_tokens: Mapping[str, int] | None = None,
        stage: str | None = None,
    ) -> None:
        """Start recording; ``start`` calls this so that warnings name the line of the script."""
        self._recorder = self._stages.select(stage)
        if model is not None:
            self._model = self._check_model(model)
        self._check_has_model(self._recorder.config)
        if self._recorder.config.dataloader:
            warnings.warn(
                "start() does nothing, because enable_dataloader starts each step by itself",
                ConfigWarning,
                stacklevel=3,
            )
            return
        self._begin_step(parse_token_range(token_range), scheduled_tokens, stage)

    def _begin_step(
        self,
        token_range: tuple[int, int] | None = None,
        scheduled_tokens: Mapping[str, int] | None = None,
        stage: str | None = None,
    ) -> None:
        """Start recording with the settings of the configuration file as it is now."""
        if self._reload is not None and not self._is_step_open and not self._apply_changed_config(self._reload):
            return
        self._recorder = self._stages.select(stage)
        if self._recorder.select_request(scheduled_tokens):
            self._is_step_open = True
            self._recorder.start(self._model, token_range)

    def _apply_changed_config(self, reload: WatchedConfig) -> bool:
        """Replace the recorder if the configuration file changed; return False if the file cannot be followed."""
        if reload.update():
            try:
                self._check_has_model(reload.config)
                self._replace_recorder(reload.config)
            except UserError as error:  # a training that has begun must go on whatever the file says
                reload.is_broken = True
                note(f"probe: {error}\nNothing is recorded until the configuration changes.")
        return not reload.is_broken

    def _replace_recorder(self, config: Config) -> None:
        """Continue with a new recorder, in the current step and with the same functions of the user."""
        recorder = self._create_recorder(config)
        for holder, attribute, name in self._registered:
            recorder.register(holder, attribute, name)
        step = self._recorder.current_step
        for former in self._stages:
            former.report_comparison()
            former.reports_missing = False
            former.finish()
            atexit.unregister(former.finish)
        atexit.register(recorder.finish)
        recorder.set_step(step)
        recorder.passed_rank = self.process.passed_rank
        self._recorder, self._settings = recorder, config
        self._stages = StageRecorders(recorder, self._new_stage_recorder)

    def _check_has_model(self, config: Config) -> None:
        if config.modules and self._model is None:
            raise UserError(
                f'start() needs the model at level "{config.level}", which records modules.',
                f"Write debugger.start(model={self.variable}).",
            )

    @allow_class_call
    def stop(self) -> None:
        """Stop recording and write the records; ``start`` may be called again in the same step."""
        self._recorder.activity.add_stop()
        if not self._recorder.config.dataloader:
            self._recorder.stop()

    @allow_class_call
    def forward_backward_dump_end(self) -> None:
        """Do the same as ``stop``, under the name that older scripts use."""
        self.stop()

    @allow_class_call
    def step(self) -> None:
        """End the step: call counts restart at 0, and the next ``start`` writes to a new directory."""
        if not self._recorder.config.dataloader:
            self._end_step()

    def _end_step(self) -> None:
        for recorder in self._stages:
            recorder.step()
        self._is_step_open = False

    @allow_class_call
    def set_init_step(self, step: int) -> None:
        """Set the number of the current step, for a training that is resumed.

        Args:
            step: The number, from 0.

        Raises:
            UserError: ``step`` is not a non-negative integer.
        """
        if type(step) is not int or step < 0:
            raise UserError(
                f"set_init_step needs a non-negative integer, not {step!r:.40}.",
                "For example debugger.set_init_step(100).",
            )
        for recorder in self._stages:
            recorder.set_step(step)

    @allow_class_call
    def monitor(self, model: M) -> None:
        """Observe a model in each step from now on, for tasks such as ``grad_probe``.

        Args:
            model: The model.

        Raises:
            UserError: The task does not observe models by this method, or ``model`` has a wrong type.
        """
        self._recorder.monitor(self._check_model(model))

    def __enter__(self: D) -> D:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.step()

    # -- single values and modules -----------------------------------------------------------

    @allow_class_call
    def save(self, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record a variable at level debug; ``start`` and ``stop`` are not needed.

        Args:
            variable: A tensor, a number, a text, or lists and dicts of them.
            name: The name of its record; variables of the same name in a step are counted from 0.
            save_backward: True to record the gradients of its tensors too, when they arrive.

        Raises:
            UserError: The name is empty, or the run cannot be written.
        """
        if not isinstance(name, str) or not name:
            raise UserError("save() needs a name that is not empty.", 'For example debugger.save(x, "x").')
        if self._reload is not None and not self._is_step_open and not self._apply_changed_config(self._reload):
            return
        self._is_step_open = True
        self._recorder.save(variable, name, save_backward)

    @allow_class_call
    def tokens(self, ids: Any, positions: Any = None, lengths: Any = None) -> None:
        """State which samples and tokens the batch of this step contains, for ``probe compare --rows tokens.json``.

        Call it in each step, before or after ``start``. Tensors on a device are read when the step is
        written.

        Args:
            ids: Numbers of samples, the same in both runs: one for each row of the batch, for each sequence of a
                packed batch, or for each token, of shape (rows, tokens), negative for padding.
            positions: The position of each token within its sample, of shape (rows, tokens), or (tokens,)
                for a packed batch; negative for padding. None to compare rows as a whole.
            lengths: The number of tokens of each sample; places beyond them are padding. Without
                ``positions`` the samples are packed one after the other. Not for numbers of each token.

        Raises:
            UserError: The shapes of the arguments do not belong together.
        """
        self._recorder.note_tokens(ids, positions, lengths)

    @allow_class_call
    def module_dump(self, module: M, dump_name: str) -> None:
        """Record the inputs and outputs of one module, and nothing inside it, until ``module_dump_end``.

        Args:
            module: The module.
            dump_name: The name of its records.

        Raises:
            UserError: ``module`` is no module of the framework, or the name is empty.
        """
        if not isinstance(module, self.kind_of_module):
            raise UserError(
                f"module_dump needs a {self.shown_kind}, not {type(module).__name__}.",
                f"Pass the {self.noun} itself.",
            )
        if not isinstance(dump_name, str) or not dump_name:
            raise UserError(
                "module_dump needs a name that is not empty.",
                f'For example debugger.module_dump({self.noun}, "block").',
            )
        self._is_step_open = True
        self._recorder.module_dump(module, dump_name)

    @allow_class_call
    def module_dump_end(self) -> None:
        """End the recording of a single module, and record as before ``module_dump``."""
        self._recorder.module_dump_end()

    def _check_model(self, model: Any) -> M | Sequence[M] | None:
        """Return ``model`` if it is a module, a list of modules or None; otherwise raise a UserError."""
        kind = self.kind_of_module
        if model is None or isinstance(model, kind):
            return model
        if isinstance(model, (list, tuple)) and model and all(isinstance(item, kind) for item in model):
            return model
        raise UserError(
            f"model must be a {self.shown_kind} or a list of them, not {type(model).__name__}.",
            f"Write debugger.start(model={self.variable}).",
        )

    # -- functions of the user -----------------------------------------------------------------

    @allow_class_call
    def register_custom_api(self, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Record the calls of a function of your own, at levels L1 and mix.

        Args:
            module: The module or class that holds the function.
            api: The name of the function in it.
            api_prefix: The first part of the names of its records; by default the name of the module.

        Raises:
            UserError: There is no function of that name.
        """
        if not isinstance(api, str) or not callable(getattr(module, api, None)):
            raise UserError(
                f"{module!r:.80} has no function called {api!r:.40}, so it cannot be recorded.",
                "Pass the module or class that holds the function, and its name as a text.",
            )
        prefix = api_prefix or str(getattr(module, "__name__", type(module).__name__))
        self._registered.append((module, api, f"{prefix}.{api}"))
        for recorder in self._stages:
            recorder.register(*self._registered[-1])

    @allow_class_call
    def restore_custom_api(self, module: Any, api: str) -> None:
        """Stop recording the calls of a function that ``register_custom_api`` registered.

        Args:
            module: The module or class that holds the function.
            api: The name of the function in it.
        """
        self._registered = [entry for entry in self._registered if entry[:2] != (module, api)]
        if not all([recorder.restore(module, api) for recorder in self._stages]):
            warnings.warn(
                f"{api} was not registered by register_custom_api, so there is nothing to restore",
                ConfigWarning,
                stacklevel=2,
            )


def _format_setting(value: Any) -> str:
    """Return a setting as text for a message."""
    value = sorted(value) if isinstance(value, frozenset) else value
    return make_printable(str(value) if isinstance(value, Path) else repr(value), 120)
