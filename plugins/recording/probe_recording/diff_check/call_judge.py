"""The choice of the calls that keep their tensors: the first ones that differ from the golden."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from probe_recording.diff_check.call_stream import CallStream, GoldenCall, PairedCall
from probe_recording.diff_check.golden_run import GoldenRun, GoldenStep
from probe_recording.diff_check.recorded_call import Agreement, RecordedCall

MAX_UNPAIRED_CALLS = 8
"""Number of calls without a partner whose tensors are held until a later call differs."""

MAX_CALLS_APART = 32
"""Number of calls after which a call without a partner cannot be the reason that a later call differs."""


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call that keeps its tensors.

    Attributes:
        step: The number of its step.
        key: The name of its record.
        golden_key: The name of its partner in the golden; None if it has none.
    """

    step: int
    key: str
    golden_key: str | None


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on the tensors of a record."""

    key: str
    is_kept: bool


class CallJudge:
    """A judge of the calls of a process, in the order of time.

    A call that differs keeps its tensors. So does a call without a partner if one of the calls that follow differs.

    Args:
        golden: The golden.
        call_count: Number of differing calls that keep their tensors; calls without a partner do not count.

    Attributes:
        golden: The golden.
        stored_calls: The calls that keep their tensors.
        differing_count: Number of calls among them that differ from their partner.
        compared_count: Number of records that were compared.
        unpaired_count: Number of records without a partner.
        missing_steps: The steps that the golden does not have for the rank.
        left_out_count: Number of tensors of kept calls that could not be held until their call was compared.
    """

    def __init__(self, golden: GoldenRun, call_count: int) -> None:
        self.golden = golden
        self.stored_calls: list[StoredCall] = []
        self.differing_count = self.compared_count = self.unpaired_count = 0
        self.missing_steps: list[int] = []
        self.left_out_count = 0
        self._call_count = call_count
        self._agreement = Agreement()
        self._step_number = 0
        self._is_missing = False
        self._step: GoldenStep | None = None
        self._number = 0
        self._waiting_streams: dict[int, CallStream] = {}
        self._partners: dict[str, str | None] = {}
        self._unpaired: deque[PairedCall] = deque()

    @property
    def is_finished(self) -> bool:
        """True once no further call keeps its tensors, or if there is nothing to compare with."""
        return self._step is None or self.differing_count >= self._call_count

    def begin_step(self, step: int, rank: int) -> None:
        """Begin to compare with a step of the golden.

        Raises:
            UserError: The golden's file cannot be read.
        """
        self.end_step()
        self._step_number = step
        if self.differing_count >= self._call_count:
            return
        file = self.golden.find_file(step, rank)
        self._is_missing = file is None
        self._step = None if file is None else GoldenStep(file)

    def end_step(self) -> list[Decision]:
        """Decide on all calls that still wait."""
        decisions = self._decide(self._settle_all())
        decisions += [Decision(pair.call.key, False) for pair in self._unpaired]
        if self._step is not None:
            self._step.close()
        self._step = None
        self._unpaired.clear()
        self._partners = {}
        return decisions

    def take(self, key: str, text: str, parent: str | None) -> list[Decision]:
        """Compare a record, and return the decisions that are possible now, on this record and on earlier ones.

        Args:
            key: The name of the record.
            text: Its JSON, without the names of tensor files.
            parent: The record of the surrounding module; None outside of modules.
        """
        if self.is_finished:
            if self._is_missing:
                self._is_missing = False
                self.missing_steps.append(self._step_number)
            return [Decision(key, False)]
        self._number += 1
        call = RecordedCall(key, text, parent, self._number)
        pairs = [*(self._take_forward(call) if call.form.is_forward else self._take_other(call))]
        if any(not pair.agrees and pair.golden_key is not None for pair in pairs):
            pairs += self._settle_all()
        return self._decide(pairs)

    def agrees(self, key: str, text: str) -> bool:
        """Return True if a record agrees with the golden's record of the same name; no decision follows."""
        golden_key = None if self._step is None else self._step.find_key(key)
        return golden_key is not None and self._compare(key, text, golden_key)

    # -- partners --------------------------------------------------------------------------

    def _take_forward(self, call: RecordedCall) -> Iterator[PairedCall]:
        assert self._step is not None
        if call.form.is_module:  # all calls inside it have been made
            inner = self._step.find_stream(call.key)
            self._waiting_streams.pop(id(inner), None)
            yield from inner.settle()
        stream = self._step.find_stream(call.parent)
        yield from stream.take(call, self._agrees_with)
        if stream.waiting:
            self._waiting_streams[id(stream)] = stream
        else:
            self._waiting_streams.pop(id(stream), None)

    def _agrees_with(self, call: RecordedCall, golden_call: GoldenCall) -> bool:
        return self._compare(call.key, call.text, golden_call.key)

    def _compare(self, key: str, text: str, golden_key: str) -> bool:
        assert self._step is not None
        return self._agreement.is_met(key, text, self._step.read_text(golden_key))

    def _take_other(self, call: RecordedCall) -> Iterator[PairedCall]:
        """Compare a backward call or the gradients of parameters, whose partner follows from the name."""
        yield from self._settle_all()
        assert self._step is not None
        key = call.key
        head = key.removesuffix(".backward")
        if head != key:
            forward_key = self._partners.get(f"{head}.forward", f"{head}.forward")
            key = "" if forward_key is None else f"{forward_key.removesuffix('.forward')}.backward"
        golden_key = self._step.find_key(key)
        agrees = golden_key is not None and self._compare(call.key, call.text, golden_key)
        yield PairedCall(call, golden_key, agrees)

    def _settle_all(self) -> list[PairedCall]:
        streams, self._waiting_streams = self._waiting_streams, {}
        pairs = [pair for stream in streams.values() for pair in stream.settle()]
        return self._note_partners(pairs)

    # -- decisions -------------------------------------------------------------------------

    def _note_partners(self, pairs: list[PairedCall]) -> list[PairedCall]:
        for pair in pairs:
            if pair.call.form.is_forward and pair.golden_key != pair.call.key:
                self._partners[pair.call.key] = pair.golden_key
        return pairs

    def _decide(self, pairs: Iterable[PairedCall]) -> list[Decision]:
        """Return the decisions that follow from pairs; calls without a partner wait for those that follow."""
        decisions: list[Decision] = []
        for pair in self._note_partners(sorted(pairs, key=lambda pair: pair.call.number)):
            decisions += self._drop_unpaired(pair.call.number - MAX_CALLS_APART)
            if pair.golden_key is None:
                self.unpaired_count += 1
                self._unpaired.append(pair)
                continue
            self.compared_count += 1
            if pair.agrees or self.differing_count >= self._call_count:
                decisions.append(Decision(pair.call.key, False))
                continue
            self.differing_count += 1
            decisions += [self._keep(unpaired) for unpaired in (*self._unpaired, pair)]
            self._unpaired.clear()
        return decisions

    def _keep(self, pair: PairedCall) -> Decision:
        self.stored_calls.append(StoredCall(self._step_number, pair.call.key, pair.golden_key))
        return Decision(pair.call.key, True)

    def _drop_unpaired(self, before: int) -> Iterator[Decision]:
        """Drop calls without a partner that are too many, or whose number is smaller than ``before``."""
        while self._unpaired and (self._unpaired[0].call.number < before or len(self._unpaired) > MAX_UNPAIRED_CALLS):
            yield Decision(self._unpaired.popleft().call.key, False)
