"""``PrecisionDebugger``: what a MindSpore program says to record itself (spec/dump 3, 4)."""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from mindspore import nn

from probe_core.errors import UserError
from probe_core.recording.config import Config, ConfigWarning, load
from probe_core.recording.interface import of_the_process, parse_token_range
from probe_mindspore.recorder import Models, Recorder


class PrecisionDebugger:
    """Records what every API and Cell of a training step takes in and gives out.

    ::

        debugger = PrecisionDebugger(config_path="config.json")
        debugger.start(model=net)     # before the forward
        ...                           # value_and_grad, optimizer
        debugger.stop()
        debugger.step()               # the next step gets a directory of its own

    There is one debugger in a process: another construction returns the first, unchanged, and its
    methods can be called on the class. As a context manager it starts on entry, and stops and ends
    the step on exit.

    Args:
        config_path: The configuration, in the peer's format; none for the defaults.
        task, dump_path, level, step: These fields of it, which come before the file.
        model: The Cell or Cells, for levels L0 and mix; ``start(model=…)`` comes before it.

    Raises:
        UserError: A configuration that cannot be followed; the message says how to mend it.
    """

    _instance: PrecisionDebugger | None = None
    _recorder: Recorder

    def __new__(cls, *args: Any, **kwargs: Any) -> PrecisionDebugger:
        """The debugger of this process."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __init__(
        self,
        config_path: str | Path | None = None,
        task: str | None = None,
        dump_path: str | Path | None = None,
        level: str | None = None,
        model: Models = None,
        step: list[int | str] | None = None,
    ) -> None:
        if hasattr(self, "_recorder"):
            return
        try:
            path = os.fspath(dump_path) if dump_path is not None else None
            config = _followed(load(config_path, task=task, dump_path=path, level=level, step=step))
            self._recorder = Recorder(config)
            self._model = _models(model)
        except BaseException:
            type(self)._instance = None
            raise
        atexit.register(self._recorder.finish)

    # -- the life of a step ----------------------------------------------------------------

    @of_the_process
    def start(self, model: Models = None, token_range: Sequence[int] | None = None) -> None:
        """Begin to record, if the current step and rank are selected.

        Args:
            model: The Cell or Cells that are recorded, for levels L0 and mix; at L1 it gives
                primitives the names of the attributes that hold them.
            token_range: First and last token, counted by the model's own forwards, to record of a
                generation.
        """
        if model is not None:
            self._model = _models(model)
        if self._recorder.config.modules and self._model is None:
            raise UserError(
                f'start() needs the model at level "{self._recorder.config.level}".',
                "Write debugger.start(model=net).",
            )
        self._recorder.start(self._model, parse_token_range(token_range))

    @of_the_process
    def stop(self) -> None:
        """Cease to record, and write what was recorded; start may follow within the same step."""
        self._recorder.stop()

    @of_the_process
    def forward_backward_dump_end(self) -> None:
        """The same as ``stop``, under the name that older scripts use."""
        self.stop()

    @of_the_process
    def step(self) -> None:
        """End the step: counts begin anew, and the next start has a directory of its own."""
        self._recorder.step()

    @of_the_process
    def set_init_step(self, step: int) -> None:
        """Number the current step ``step``, as when training is resumed."""
        if type(step) is not int or step < 0:
            raise UserError(f"set_init_step needs a whole number from 0 on, not {step!r:.40}.", "Change it.")
        self._recorder.set_step(step)

    def __enter__(self) -> PrecisionDebugger:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.step()

    # -- single values, Cells and functions of the user's --------------------------------------

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
    def module_dump(self, module: nn.Cell, dump_name: str) -> None:
        """Record what one Cell takes in and gives out, and nothing inside it, until ``module_dump_end``."""
        if not isinstance(module, nn.Cell):
            raise UserError("module_dump needs a mindspore.nn.Cell.", "Pass the Cell itself.")
        if not isinstance(dump_name, str) or not dump_name:
            raise UserError("module_dump needs a name that is not empty.", "Pass a name.")
        self._recorder.module_dump(module, dump_name)

    @of_the_process
    def module_dump_end(self) -> None:
        """End what ``module_dump`` began."""
        self._recorder.module_dump_end()

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


def _followed(config: Config) -> Config:
    """The configuration, if MindSpore can be recorded so; what is not done here is refused or said aloud."""
    if config.level == "L2":
        raise UserError(
            'Level "L2" is not offered for MindSpore.', 'Set "level" to one of:', ("L0", "L1", "mix", "debug")
        )
    if config.compile == "tap":
        raise UserError('"compile": "tap" is for PyTorch only.', 'Leave "compile" out.')
    asked = {
        "enable_dataloader": config.dataloader,
        "async_dump": config.asynchronous,
        "support_wrap_ops": config.wrap_ops is not None,
        "risk_level": config.risk_level != "ALL",
        "seed": config.seed is not None,
        "is_deterministic": config.deterministic,
    }
    for name in (name for name, given in asked.items() if given):
        warnings.warn(f'"{name}" is not supported for MindSpore and is ignored', ConfigWarning, stacklevel=3)
    return replace(config, dataloader=False, asynchronous=False, wrap_ops=None)


def _models(model: Any) -> Models:
    if model is None or isinstance(model, nn.Cell):
        return model
    if isinstance(model, (list, tuple)) and model and all(isinstance(item, nn.Cell) for item in model):
        return model
    raise UserError(
        f"model must be a mindspore.nn.Cell or a list of them, not {type(model).__name__}.",
        "Write debugger.start(model=net).",
    )
