"""The object of the fixture ``probe_golden``, which records the steps of a test and judges them at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import nn

from probe_core.errors import UserError
from pytest_probe.golden_test import GoldenTest, Judgment, RecordedRun, judge_run
from pytest_probe.model_state import save_state, set_seeds
from pytest_probe.place import find_place
from pytest_probe.recording import StepRecorder
from pytest_probe.repetitions import Repetition, iterate_tensors, perturb_tensors
from pytest_probe.update import update_golden


class ProbeGolden:
    """The fixture ``probe_golden``: compares what a test computes with its golden file.

    ::

        def test_block(probe_golden):
            model = Block()
            probe_golden.check(model, torch.ones(2, 8))

        def test_training_step(probe_golden):
            model = Block()
            with probe_golden.record(model):
                model(torch.ones(2, 8)).sum().backward()

    Each ``check`` and each ``record`` is a step of the run. The steps are compared when the test ends.
    """

    def __init__(self, test: GoldenTest) -> None:
        self._test = test
        self._repetition: Repetition | None = None
        self._states: dict[nn.Module, Callable[[], None]] = {}
        self._begin()

    def _begin(self) -> None:
        """Begin a run of the test."""
        self._recorder = StepRecorder(self._test.create_directory())
        self._run = RecordedRun(find_place((), ()), self._recorder.steps)
        self._used_models: set[nn.Module] = set()
        set_seeds()

    def check(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function or a model, record the call as a step, and return the result.

        Args:
            function: The function or the model.
            *args: The arguments of the call.
            **kwargs: The keyword arguments of the call.
        """
        if not callable(function):
            raise UserError(
                f"probe_golden.check() needs a function or a model, not {type(function).__name__}.",
                "Pass the function first and then its arguments: probe_golden.check(model, x).",
            )
        models = [function] if isinstance(function, nn.Module) else []
        with self._record(models, (args, kwargs)):
            return function(*args, **kwargs)

    @contextmanager
    def record(self, *models: nn.Module) -> Iterator[None]:
        """Record what a block of code computes as a step, such as a forward and a backward pass.

        Args:
            *models: The models whose modules are recorded; if empty, the models that the block calls.
        """
        for model in models:
            if not isinstance(model, nn.Module):
                raise UserError(
                    f"probe_golden.record() needs models of class torch.nn.Module, not {type(model).__name__}.",
                    "Pass the model: with probe_golden.record(model):",
                )
        with self._record(models, ()):
            yield

    @contextmanager
    def _record(self, models: Sequence[nn.Module], arguments: Any) -> Iterator[None]:
        if self._recorder.is_active:
            raise UserError(
                "probe_golden records already, and steps cannot be nested.",
                "Call check() and record() one after the other.",
            )
        if not self._recorder.steps:
            self._run = replace(self._run, place=find_place(models, arguments))
        data_set = 0 if self._repetition is None else self._repetition.data_set
        for model in models if self._test.updates else ():
            self._begin_model(model, data_set)
        restore = perturb_tensors(data_set, iterate_tensors(arguments))
        try:
            with self._recorder.record(models):
                yield
        finally:
            restore()

    def _begin_model(self, model: nn.Module, data_set: int) -> None:
        """Prepare a model that a run of the test uses for the first time.

        A model that an earlier run used, such as that of a fixture, is reset.
        """
        if model in self._used_models:
            return
        self._used_models.add(model)
        if self._repetition is None:
            self._states[model] = save_state(model)
        elif model in self._states:
            self._states[model]()
        perturb_tensors(data_set, model.parameters())

    def judge(self) -> Judgment:
        """Return the judgment on the run, once the test has passed.

        Raises:
            UserError: There is nothing to compare.
        """
        return judge_run(self._test, self._run)

    def update(self, run_test: Callable[[], object]) -> Judgment:
        """Write the section of the golden file, once the test has passed.

        Args:
            run_test: A function that runs the test again.

        Raises:
            UserError: The file cannot be written, or the test is not repeatable.
        """
        final_states = [save_state(model) for model in self._states]
        try:
            return update_golden(self._test, self._run, lambda repetition: self._repeat(run_test, repetition))
        finally:
            for restore in final_states:
                restore()

    def _repeat(self, run_test: Callable[[], object], repetition: Repetition) -> RecordedRun:
        self.close()
        self._repetition = repetition
        self._begin()
        with repetition.use_threads():
            run_test()
        return self._run

    def close(self) -> None:
        """Release the directory of the recorded run."""
        self._recorder.close()
