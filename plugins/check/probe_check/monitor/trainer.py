"""``TrainerMon``, by which a training script monitors itself (docs/monitor.md)."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from probe_recording.messages import note

from probe_check.monitor import sentences
from probe_check.monitor.directories import choose_run_directory, find_run_directories, get_output_base
from probe_check.monitor.figures import Figures
from probe_check.monitor.observer import Observer
from probe_check.monitor.output import CsvOutput, MonitorOutput, NoOutput, TensorBoardOutput
from probe_check.monitor.recording import StepRecorder
from probe_check.monitor.reports import AlertReporter, OneTimeReports
from probe_check.monitor.settings import ConfigurationFile, MonitorSettings, Schedule, is_dynamic, load_settings
from probe_check.monitor.tasks import Task
from probe_core.errors import UserError, describe_error


class TrainerMon:
    """A monitor of the gradients, parameters, moments and activations of a training.

    ::

        monitor = TrainerMon("monitor_config.json", params_have_main_grad=False)
        monitor.set_monitor(model, grad_acc_steps=1, optimizer=optimizer)

    Args:
        config_file_path: The configuration.
        process_group: The group of pipeline parallelism, by which events of several ranks are sorted.
        params_have_main_grad: True to observe ``main_grad`` of each parameter that has one (Megatron).

    Attributes:
        directory: The directory of this rank's files; None before ``set_monitor``.

    Raises:
        UserError: The configuration has an error; the message says how to correct it.
    """

    def __init__(
        self,
        config_file_path: str | os.PathLike[str],
        process_group: Any = None,
        params_have_main_grad: bool = True,
    ) -> None:
        self._file = ConfigurationFile(Path(config_file_path).absolute())
        self._settings = load_settings(self._file.path)
        self._process_group = process_group
        self._has_main_grad = params_have_main_grad
        self._is_dynamic = is_dynamic()
        self._observer: Observer | None = None
        self._schedule: Schedule | None = None
        self._output: MonitorOutput = NoOutput()
        self._alerts: AlertReporter | None = None
        self._reports = OneTimeReports()
        self._pid = os.getpid()
        self._is_observed = self._has_failed = False
        self.step = 0
        self.directory: Path | None = None

    # -- interface of scripts --------------------------------------------------------------

    def set_monitor(
        self,
        model: Any,
        grad_acc_steps: Any,
        optimizer: Any,
        dp_group: Any = None,
        tp_group: Any = None,
        start_iteration: int = 0,
    ) -> None:
        """Monitor a training from now on.

        Args:
            model: The model, or a list of the models of virtual pipeline stages.
            grad_acc_steps: Number of micro-batches of a step. It and ``optimizer`` may be swapped, as the
                code of msprobe has them.
            optimizer: The optimizer whose steps are those of the training.
            dp_group: The group of data parallelism; only its first rank writes reduced gradients.
            tp_group: The group of tensor parallelism; only its first rank writes the reduced gradients of
                parameters without the mark ``tensor_model_parallel``.
            start_iteration: The number of the first step.

        Raises:
            UserError: An argument has a wrong type, the framework does not support the configuration, or the
                files cannot be written.
        """
        if self._observer is not None:
            raise UserError("set_monitor() was called twice.", "Construct another TrainerMon.")
        if isinstance(optimizer, int) and not isinstance(grad_acc_steps, int):
            grad_acc_steps, optimizer = optimizer, grad_acc_steps
        _check_number("grad_acc_steps", grad_acc_steps, 1)
        _check_number("start_iteration", start_iteration, 0)
        models = tuple(model) if isinstance(model, (list, tuple)) else (model,)
        groups = {"dp_group": dp_group, "tp_group": tp_group}
        observer = create_observer(models, optimizer, grad_acc_steps, groups, self._has_main_grad)
        self._attach(observer, grad_acc_steps, start_iteration)

    def _attach(self, observer: Observer, micro_steps: int, first_step: int) -> None:
        """Start to monitor by an observer."""
        place = observer.get_group_position(self._process_group)
        self._alerts = AlertReporter(observer.process.rank, *place, micro_steps)
        self.step = first_step
        self._observer = observer
        try:
            if not self._is_dynamic:
                self._start(self._settings, self._settings.start_step)
            observer.hook_steps(self)
        except BaseException:
            observer.close()
            self._observer = None
            raise
        atexit.register(self.close)

    def close(self) -> None:
        """Remove all hooks, and write what is not written yet; called when the program ends."""
        if os.getpid() != self._pid:
            return
        self._stop()
        if self._observer is not None:
            self._observer.close()
        if self._alerts is not None and self._alerts.recorder is not None:
            self._alerts.recorder.finish()

    def generate_wgrad_metrics(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the figures of the reduced and of the unreduced gradients of the present step, by tag."""
        if self._observer is None:
            return {}, {}
        reduced = self._observer.list_figures([Task.GRADIENT_REDUCED])
        return self._index_by_tag(reduced), self._index_by_tag(self._observer.list_figures([Task.GRADIENT_UNREDUCED]))

    def generate_xy_metrics(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the figures of the activations and of their gradients in the present step, by tag."""
        if self._observer is None:
            return {}, {}
        forward = self._observer.list_figures([Task.ACTIVATION])
        return self._index_by_tag(forward), self._index_by_tag(self._observer.list_figures([Task.ACTIVATION_GRADIENT]))

    def _index_by_tag(self, figures: Sequence[Figures]) -> dict[str, Any]:
        operations = self._settings.operations
        rank = self._rank
        return {
            each.format_tag(rank): {
                **dict(zip(operations, each.values)),
                "shape": None if each.shape is None else list(each.shape),
                "dtype": each.dtype,
            }
            for each in figures
        }

    # -- start and end ---------------------------------------------------------------------

    @property
    def _rank(self) -> int:
        return self._observer.process.rank if self._observer is not None else 0

    def _start(self, settings: MonitorSettings, first_step: int) -> None:
        """Install the hooks and open the files of a configuration."""
        observer = self._observer
        assert observer is not None
        self._settings = settings
        self._schedule = schedule = Schedule(settings, first_step)
        if schedule.is_finished or not observer.process.is_selected(settings.ranks):
            self._is_observed = False
            return
        observer.install(settings, self)  # it refuses what it does not support, before a directory is created
        self._output = self._create_output(settings)
        alerts, directory = self._alerts, self.directory
        assert alerts is not None and directory is not None
        alerts.configure(settings)
        if settings.alert.recorded_steps and alerts.recorder is None:
            alerts.recorder = StepRecorder(observer.framework, directory, observer.models)
            observer.hook_step_ends(alerts.recorder.end_step)
        self._is_observed = schedule.includes(self.step)

    def _create_output(self, settings: MonitorSettings) -> MonitorOutput:
        if self.directory is None:
            self.directory = self._find_continued_directory(settings) or choose_run_directory(
                get_output_base(), self._rank
            )
        if settings.format == "tensorboard":
            return TensorBoardOutput(self.directory, settings.operations, self._rank)
        return NoOutput() if settings.format == "api" else CsvOutput(self.directory, settings)

    def _find_continued_directory(self, settings: MonitorSettings) -> Path | None:
        base = get_output_base()
        if settings.append_range is None or not base.is_dir():
            return None
        runs = find_run_directories(base, *settings.append_range)
        return next((run.path for run in runs if run.rank == self._rank), None)

    def _stop(self) -> None:
        """Remove the hooks and close the files."""
        self._is_observed = False
        if self._observer is not None:
            self._observer.remove()
        self._output.close()
        self._output = NoOutput()
        self._schedule = None

    def fail(self, error: Exception) -> None:
        """End the monitoring because of an error; the training goes on.

        The hooks do nothing from now on. They are removed after the step, because torch calls the hooks of a
        module in a wrong way if one of them removes others.
        """
        self._is_observed = False
        if not self._has_failed:
            self._has_failed = True
            note(
                sentences.format_end(
                    self.step, error.what if isinstance(error, UserError) else f"{describe_error(error)}."
                )
            )

    # -- steps -----------------------------------------------------------------------------

    @property
    def is_observed(self) -> bool:
        """True if the present step is observed."""
        return self._is_observed and os.getpid() == self._pid

    def observe_step_start(self) -> None:
        """Observe what an optimizer is about to use."""
        if self.is_observed and self._observer is not None:
            try:
                self._observer.observe_before()
                self._reports.report_and_end(self._observer, self.step, self.directory)
            except Exception as error:  # of the framework: the training must go on
                self.fail(error)

    def observe_step_end(self) -> None:
        """Observe what an optimizer changed, write the figures of the step, and end it."""
        observer = self._observer
        if observer is None or os.getpid() != self._pid:
            return
        try:
            if self._is_observed:
                observer.observe_after()
                self._write(observer)
            observer.end_step()
            self._next_step()
        except Exception as error:  # of the framework or the file system: the training must go on
            self.fail(error)
        if self._has_failed and self._schedule is not None:
            self._stop()

    def _next_step(self) -> None:
        self.step += 1
        if self._has_failed:
            return
        schedule = self._schedule
        if schedule is not None and schedule.is_finished:
            self._stop()
            if self._is_dynamic:
                self._file.switch_off()
            schedule = None
        if self._is_dynamic and (settings := self._file.load_changed_settings()) is not None:
            self._stop()
            self._start(settings, self.step)
        elif schedule is not None:
            is_selected = self._observer is not None and self._observer.process.is_selected(self._settings.ranks)
            self._is_observed = is_selected and schedule.includes(self.step)

    def _write(self, observer: Observer) -> None:
        step = self.step
        figures = observer.take()
        self._output.write(step, figures)
        for tag, values in observer.take_histograms().items():
            self._output.add_histogram(tag, values, step)
        if self._schedule is not None:
            self._schedule.count_step()
        if self._alerts is not None:
            self._alerts.report(figures, step)


def create_observer(
    models: Sequence[Any], optimizer: Any, micro_steps: int, groups: dict[str, Any], has_main_grad: bool
) -> Observer:
    """Return the observer of the framework that the models belong to.

    Raises:
        UserError: The models belong to no framework.
    """
    torch: Any = sys.modules.get("torch")
    if torch is not None and models and all(isinstance(model, torch.nn.Module) for model in models):
        from probe_check.monitor.pytorch.observer import TorchObserver

        return TorchObserver(models, optimizer, micro_steps, groups, has_main_grad)
    mindspore: Any = sys.modules.get("mindspore")
    if mindspore is not None and models and all(isinstance(model, mindspore.nn.Cell) for model in models):
        from probe_check.monitor.mindspore import MindSporeObserver

        return MindSporeObserver(models, optimizer, micro_steps)
    kind = type(models[0]).__name__ if models else "an empty list"
    raise UserError(
        f"set_monitor() needs a torch.nn.Module or a mindspore.nn.Cell, not {kind}.",
        "Pass the model, or a list of models.",
    )


def _check_number(name: str, value: Any, minimum: int) -> None:
    if type(value) is not int or value < minimum:
        raise UserError(
            f"{name} must be a whole number of at least {minimum}, not {value!r:.40}.",
            f"For example {name}={minimum}.",
        )
