"""API calls of a recorded run, with their forward and backward records, and the selection of calls to run.

The rules are in docs/standards.md#inputs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from probe_core.errors import UserError, find_nearest_names, make_printable
from probe_core.model import Kind
from probe_core.model.run import Run
from probe_core.store.names import CELL_SCOPE, MODULE_SCOPE, get_scope
from probe_precheck.model import BACKWARD, FORWARD, Call, describe_unlisted
from probe_precheck.protocols import RecordedRun
from probe_precheck.settings import Settings

BASE_COST = 1000.0
"""Cost of a call without tensors, in elements."""
NOT_RUN_SCOPES = frozenset({"Distributed", "MindSpeed"})
"""Scopes of APIs that are never run alone."""
NOT_COMPARED_FIELDS = frozenset({"Max", "Min", "Mean", "Norm", "md5", "data_name", "Max_except_inf_nan",
                          "Min_except_inf_nan", "Max_origin", "Min_origin"})  # fmt: skip
"""Fields of a tensor that may differ between calls which count as repetitions (``-f``)."""


def get_api_name(call: str) -> str:
    """Return the API of a call: its name without the count, such as ``Functional.linear``."""
    return call.rpartition(".")[0]


def get_bare_name(call: str) -> str:
    """Return the API of a call without its scope, as lists of APIs name it: ``linear``, ``linalg.inv``."""
    return get_api_name(call).partition(".")[2]


def require_arguments(run: Run) -> RecordedRun:
    """Return the run if its file contains the arguments of each call.

    Raises:
        UserError: The run has another format.
    """
    if hasattr(run, "fields"):
        return cast("RecordedRun", run)
    raise UserError(
        f"{run.path} does not contain the arguments of its calls, so they cannot be run again.",
        "Give the dump.json of a run.",
    )


class RecordedCalls:
    """Calls of one run, in the order of their first record.

    Modules of PyTorch are ignored, as in msprobe. Cells of MindSpore are calls with a SKIP row.

    Args:
        run: A run with records of APIs.

    Raises:
        UserError: The run contains no calls of APIs.
    """

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        self._forward: dict[str, int] = {}
        self._backward: dict[str, int] = {}
        for index, key in enumerate(run.names()):
            scope = get_scope(key)
            if scope == MODULE_SCOPE:
                continue
            name, _, phase = key.rpartition(".")
            if scope == CELL_SCOPE and phase not in (FORWARD, BACKWARD):
                path, _, phase = name.rpartition(".")
                if phase not in (FORWARD, BACKWARD):
                    continue  # the gradients of the parameters of the cell
                name = f"{path}.{key.rpartition('.')[2]}"
            if phase == BACKWARD:
                self._backward[name] = index
            else:
                self._forward[name if phase == FORWARD else key] = index
        orphans = [name for name in self._backward if name not in self._forward]
        self.names = [*self._forward, *orphans]
        if all(name.startswith(f"{CELL_SCOPE}.") for name in self.names):
            level = f" (level {run.header.level})" if run.header.level else ""
            raise UserError(
                f"{run.path} contains no calls of APIs{level}, so there is nothing to check.",
                "Record the run with level L1 or mix.",
            )

    def __len__(self) -> int:
        return len(self.names)

    def get_call(self, index: int, settings: Settings) -> Call:
        """Return the call at ``index`` with its records, and with the reason if it is not run."""
        name = self.names[index]
        forward, backward = self._forward.get(name), self._backward.get(name)
        fields = {} if forward is None else self._run.fields(forward)
        return Call(
            name,
            index,
            fields if isinstance(fields, dict) else {},
            None if backward is None else self._run.fields(backward),
            self._find_problem(name, settings),
        )

    def estimate_cost(self, index: int) -> float:
        """Return an estimate of the cost of a call: the number of elements of its tensors, times 3 with a backward."""
        forward, backward = self._forward.get(self.names[index]), self._backward.get(self.names[index])
        elements = BASE_COST
        if forward is not None:
            for slot in self._run.record(forward).slots:
                if slot.value.kind is Kind.TENSOR and slot.value.shape is not None:
                    elements += math.prod(slot.value.shape)
        return elements if backward is None else 3 * elements

    def _find_problem(self, name: str, settings: Settings) -> str:
        """Return the reason why a call is not run; empty if it is run."""
        problem = find_skip_message(name, settings)
        if not problem and name not in self._forward:
            return f"API {name} has a backward record and no forward record. SKIP."
        return problem

    def select(self, only: Sequence[str], *, distinct: bool = False) -> list[int]:
        """Return the indices of the calls to run.

        Args:
            only: The names of calls and APIs to run; empty for all calls.
            distinct: True to run calls with equal arguments once.

        Raises:
            UserError: A name in ``only`` is that of no call and of no API.
        """
        apis = [get_api_name(name) for name in self.names]
        for name in only:
            if name not in apis and name not in self.names:
                close = find_nearest_names(name, [*apis, *self.names])
                raise UserError(
                    f'The run contains no call "{name}", so --only cannot select it.',
                    "Nearest:" if close else "Give a name such as Functional.linear.0, or Functional.linear.",
                    close,
                )
        indices = self.iterate_distinct() if distinct else range(len(self))
        return [index for index in indices if not only or {self.names[index], apis[index]} & {*only}]

    def iterate_distinct(self) -> Iterator[int]:
        """Yield the indices of calls that do not repeat an earlier call of their API (``-f``)."""
        signatures: set[tuple[str, str]] = set()
        for index, name in enumerate(self.names):
            forward = self._forward.get(name)
            if forward is None:
                yield index
                continue
            fields = self._run.fields(forward)
            arguments = {key: fields.get(key) for key in ("input_args", "input_kwargs", "input")}
            signature = get_api_name(name), json.dumps(_drop_varying_fields(arguments), sort_keys=True)
            if signature not in signatures:
                signatures.add(signature)
                yield index


def find_skip_message(name: str, settings: Settings) -> str:
    """Return the reason in the name of a call why it is not run; empty if it may be run."""
    parts = name.split(".")
    if parts[0] in NOT_RUN_SCOPES:
        return f"{parts[0]} APIs are not supported for run ut. SKIP."
    if parts[0] == CELL_SCOPE:
        return f"A {CELL_SCOPE} is not run alone: the APIs that it calls are checked individually. SKIP."
    if len(parts) not in (3, 4) or not parts[-1].isdecimal():
        return f"API {make_printable(name)} not support for run ut. SKIP."
    if not settings.selects(get_bare_name(name)):
        return describe_unlisted(name)
    return ""


def _drop_varying_fields(value: Any) -> Any:
    """Return descriptions of arguments without the fields that may differ between repetitions."""
    if isinstance(value, Mapping):
        return {key: _drop_varying_fields(item) for key, item in value.items() if key not in NOT_COMPARED_FIELDS}
    if isinstance(value, list):
        return [_drop_varying_fields(item) for item in value]
    return value
