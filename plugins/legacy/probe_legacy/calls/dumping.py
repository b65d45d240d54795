"""The state of ptdbg_ascend's calls in a process: what is recorded, and where it is written.

While the switch is on, probe's recorder writes to a hidden directory beside the result. When the switch is
turned off, and at the end of the process, rows and tensors are made of it and the directory is removed.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from probe_pytorch.capture.kernel_dump import KernelDump, load_gradient
from probe_recording.interrupts import defer_interrupts

from probe_core.errors import UserError
from probe_core.files.atomic import make_directory
from probe_core.store.files import DEFAULT_RECORD_FILES
from probe_legacy.calls.overflow import OverflowCalls, OverflowCheck
from probe_legacy.calls.recorder import OldRecorder
from probe_legacy.calls.rows import PtdbgRows, open_recording
from probe_legacy.calls.selection import STACK_MODES, CallSelection
from probe_legacy.calls.versions import PTDBG, Version, write_operators
from probe_legacy.reading.names import parse_ptdbg_name

FILE = "dump.pkl"
"""The name of the file from 3.0 on."""
UNNAMED_FILE = Path("anonymous.pkl")
"""The file of a program that never called ``set_dump_path``."""


@dataclass(frozen=True, slots=True)
class Period:
    """A period between two switches.

    Attributes:
        selection: The calls.
        filters: True to leave out all but floating tensors with a dimension and an element.
        directions: Those of forward and backward.
        sides: Those of input and output.
    """

    selection: CallSelection
    filters: bool
    directions: frozenset[str]
    sides: frozenset[str]


class PtdbgRecording:
    """The recording of one process.

    Attributes:
        version: The version whose format is written.
        path: The file, or from 3.0 on the directory, that ``set_dump_path`` named; None if it did not.
        tag: The first part of the name of the directory of all ranks.
        scope: The names that the last switch selected.
        directory: The directory of the rank; None before ``register_hook``.
        recorder: The recorder; None before ``register_hook``.
    """

    def __init__(self) -> None:
        self.version: Version = PTDBG["2.3"]
        self.path: Path | None = None
        self.tag = "ptdbg_dump"
        self.scope: Sequence[str] = ()
        self.directory: Path | None = None
        self.recorder: OldRecorder | None = None
        self._model: Any = None
        self._file = UNNAMED_FILE
        self._period: Period | None = None
        self._rows: PtdbgRows | None = None
        self._begun: set[Path] = set()
        self._acl: Path | None = None
        self._gradients: Sequence[Any] = ()
        self._check: OverflowCheck | None = None
        self._checks = True, True
        self._process = 0
        atexit.register(self.finish)

    # -- places ----------------------------------------------------------------------------

    def set_path(self, path: Path, tag: str) -> None:
        """Set the file to write to; after ``register_hook`` it is written itself, without directories."""
        self.flush()
        self.path, self.tag = path, tag
        if self.recorder is not None:
            takes_directory = self.version.takes_directory
            self.directory = path if takes_directory else path.parent
            self._file = Path(FILE if takes_directory else path.name)
            make_directory(self.directory)

    def place(self, rank: int) -> Path:
        """Create and return the directory of a rank."""
        root = Path()
        if self.path is not None:
            root = self.path if self.version.takes_directory else self.path.parent
            self._file = Path(FILE if self.version.takes_directory else self.path.name)
        directory = root / f"{self.tag}_v{self.version.name}" / f"rank{rank}"
        make_directory(directory)
        self.directory = directory.absolute()
        return self.directory

    def get_file(self, mode: str) -> Path:
        """Return the file that a mode writes."""
        assert self.directory is not None
        is_named = mode != "all" if self.version.takes_directory else mode == "api_stack"
        return self.directory / (f"{mode}_{self._file.name}" if is_named else self._file.name)

    # -- recording -------------------------------------------------------------------------

    def register(self, model: Any, rank: int, acl: Any = None) -> None:
        """Begin to count the calls of the program, to be recorded under the switch.

        Args:
            model: The model.
            rank: The number of the rank.
            acl: The configuration of the device's dump, for mode acl.
        """
        self._model = model
        self._acl = Path(acl).absolute() if acl is not None else None
        self._new_recorder(rank).rest()

    def register_check(self, rank: int, most: int, acl: Any = None) -> None:
        """Check calls for overflows from now on.

        Args:
            rank: The number of the rank.
            most: The number of overflows after which the program ends.
            acl: The configuration of the device's dump, to be made of each overflowing forward call.
        """
        recorder = self._new_recorder(rank)
        assert self.directory is not None
        kernels = None if acl is None else self._create_kernel_dump(Path(acl).absolute())
        check = self._check = OverflowCheck(self.version, self.directory, most, kernels, *self._checks)
        if check.flags is not None:
            check.flags()  # which clears the device's flag
        recorder.check(lambda threads: OverflowCalls(check, threads))

    def switch_check(self, is_on: bool, filters: bool) -> None:
        """Turn the check on or off, also before ``register_hook`` asks for it."""
        self._checks = is_on, filters
        if self._check is not None:
            self._check.is_on, self._check.filters = is_on, filters

    def _new_recorder(self, rank: int) -> OldRecorder:
        self.finish()
        scratch = self.place(rank).parent.parent / f".probe_{os.getpid()}"  # the tool lists the directories below
        make_directory(scratch)
        operators = scratch / "operators.json"
        write_operators(self.version, operators)
        self._begun.clear()
        self._process = os.getpid()
        self.recorder = OldRecorder(self.version, scratch, operators)
        return self.recorder

    def _create_kernel_dump(self, config: Path) -> KernelDump:
        assert self.directory is not None
        return KernelDump(sys.modules.get("torch_npu"), self.directory, config)

    def switch_on(self, period: Period, scope: Sequence[str] = ()) -> None:
        """Record a period, after ending one that is under way.

        Args:
            period: What is recorded.
            scope: The names that were given, of which mode acl takes the one call.
        """
        self.flush()
        self.scope = tuple(scope)
        if self.recorder is None:
            raise UserError(
                "set_dump_switch comes before register_hook, so there is nothing to record.",
                "Call register_hook(model, acc_cmp_dump) first.",
            )
        if period.selection.mode == "acl" and self._acl is None:
            raise UserError(
                'Mode "acl" needs the configuration of the device\'s dump.',
                'Call register_hook(model, acc_cmp_dump, dump_mode="acl", dump_config="dump.json").',
            )
        self._period = period
        self._rows = PtdbgRows(self.version, period.selection, period.filters, self.recorder.tuples)
        self._begin()

    def _begin(self) -> None:
        period, recorder = self._period, self.recorder
        assert period is not None and recorder is not None
        mode = period.selection.mode
        has_values = mode not in ("stack", "acl")
        config = replace(
            recorder.config,
            task="tensor" if has_values else "statistics",
            directions=period.directions,
            sides=period.sides if has_values else frozenset(),
            extra_info=mode in STACK_MODES,
        )
        recorder.begin(self._model, period.selection, config)

        if mode == "acl":
            self._dump_kernels()

    def set_gradients(self, files: Sequence[Any]) -> None:
        """Set the gradients that mode acl runs backward calls with, one for each name of ``scope``.

        Raises:
            UserError: There are more or fewer files than names.
        """
        if len(files) != len(self.scope):
            raise UserError(
                f"set_backward_input got {len(files)} files for {len(self.scope)} names in scope.",
                "Call it after set_dump_switch, with a file for each name.",
            )
        self._gradients = tuple(files)
        if self._period is not None and self._period.selection.mode == "acl":
            self._dump_kernels()

    def _dump_kernels(self) -> None:
        """Dump the device's kernels of the call that mode acl selects."""
        assert self._acl is not None and self.recorder is not None
        name = parse_ptdbg_name(f"{self.scope[0]}_input.0")
        if name is None:
            raise UserError(
                f"{self.scope[0]} is no name of a call.", 'For example scope=["Functional_conv2d_1_forward"].'
            )
        gradient = load_gradient(Path(self._gradients[0])) if self._gradients else None
        if self.recorder.calls is not None:
            key = name[0].format_key(name[0].number)
            self.recorder.calls.dump_kernels(key, self._create_kernel_dump(self._acl), gradient)

    def switch_off(self) -> int:
        """End the period and write it; return the number of calls of which something was written."""
        self._write()
        self._gradients = ()
        rows, self._rows, self._period = self._rows, None, None
        return rows.written if rows is not None else 0

    def flush(self) -> None:
        """Write what was recorded so far, and go on with the period."""
        if self._period is not None:
            self._write()
            self._begin()

    @defer_interrupts()
    def finish(self) -> None:
        """Write everything and end the recording."""
        recorder = self.recorder
        if recorder is None or os.getpid() != self._process:
            return  # a forked process, whose recorder has let go
        self.switch_off()
        recorder.finish()
        self.recorder = self._check = None
        shutil.rmtree(recorder.config.dump_path, ignore_errors=True)

    def _write(self) -> None:
        """Write the rows and tensors of the period so far behind those of earlier periods."""
        recorder, rows = self.recorder, self._rows
        if recorder is None or rows is None or os.getpid() != self._process:
            return
        part = recorder.directory
        recorder.step()
        recorder.rest()
        if not (part / DEFAULT_RECORD_FILES[0]).is_file():
            return
        file = self.get_file(rows.selection.mode)
        tensors = file.with_suffix("")
        self._make_room(file, tensors)
        if rows.selection.mode not in ("stack", "acl"):
            tensors.mkdir(exist_ok=True, mode=0o750)
        run = open_recording(part)
        with file.open("a", encoding="utf-8") as lines:
            rows.write(run, lines, tensors)
        run.close()
        shutil.rmtree(part.parent, ignore_errors=True)

    def _make_room(self, file: Path, tensors: Path) -> None:
        """Remove what an earlier program left in a place, before the first row is written there."""
        if file in self._begun:
            return
        self._begun.add(file)
        file.unlink(missing_ok=True)
        if tensors.is_dir():
            for array in tensors.glob("*.npy"):
                array.unlink()


def find_rank(model: Any) -> int:
    """Return the rank of a process: the index of its model's device, or its number in the process group."""
    parameter = next(model.parameters(), None)
    if parameter is not None and parameter.device.index is not None and parameter.device.type != "cpu":
        return int(parameter.device.index)
    dist = torch.distributed
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
