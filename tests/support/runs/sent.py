"""Calls of a recorded run as a training would send them: the record in the head, the tensors in the body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probe_precheck.rebuild import list_descriptions
from probe_pytorch.precheck.rebuild import load_any
from probe_recording.api import leaf_of
from probe_recording.reading.tensors import open_tensors
from probe_recording.sending.body import SentTensor, encode_body
from probe_recording.sending.message import PREFIX, FrameKind, encode_call_head, encode_frame


def call_frames(dump: Path, *, step: int = 0, rank: int = 0, first: int = 0) -> Iterator[bytes]:
    """Yield the frame of each forward record in a ``dump.json``, in its order; they are counted from ``first`` on."""
    records = json.loads(dump.read_text("utf-8"))["data"]
    tensors = open_tensors(dump.parent / "dump_tensor_data", load_any)
    for seq, (name, fields) in enumerate(
        ((name, fields) for name, fields in records.items() if name.endswith(".forward")), first
    ):
        sent = []
        for leaf in list_descriptions([fields[key] for key in fields if key.startswith(("input", "output"))]):
            if isinstance(leaf, dict) and leaf.get("data_name"):
                array = tensors(leaf_of(dict(leaf), ""))
                bare = leaf["data_name"].rpartition(".")[0]
                sent.append(SentTensor(bare, array.dtype.name, array.shape, array.tobytes()))
        head = encode_call_head(seq, step, rank, name, json.dumps(fields))
        yield b"".join(map(bytes, encode_frame(FrameKind.CALL, head, encode_body(sent))))


def with_rank(frame: bytes, rank: int) -> bytes:
    """Return the frame of the same call on another rank."""
    from probe_recording.sending.message import parse_call, parse_frame_file

    found = parse_frame_file(frame)
    call = parse_call(found)
    head = encode_call_head(call.seq, call.step, rank, call.name, json.dumps(call.fields))
    return b"".join(map(bytes, encode_frame(FrameKind.CALL, head, [found.body])))


def payload(frame: bytes) -> Any:
    """Return what the receiver gives a worker of a call's frame."""
    from probe_online.judging import SentPayload
    from probe_recording.sending.message import parse_prefix

    return SentPayload(frame, PREFIX.size, PREFIX.size + parse_prefix(frame).head)
