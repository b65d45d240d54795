"""Hostile and damaged checkpoints: each is refused in one sentence, and nothing in it runs."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from support.runs.pt_builder import ONES, V2, archive, data, program, storage, tensor

Writer = Callable[[Path], Path]
"""A function that writes a checkpoint below a directory, and returns its path."""
GOOD = {"weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
ATTACKS = (
    "os system", "posix system", "os popen", "subprocess Popen", "subprocess check_output", "builtins eval",
    "builtins exec", "builtins __import__", "builtins open", "shutil rmtree", "runpy run_path",
    "importlib import_module", "socket socket", "ctypes CDLL", "pty spawn", "webbrowser open", "torch.hub load",
    "sys exit", "functools partial", "operator attrgetter", "pickle loads", "__builtin__ eval", "nt system",
    "multiprocessing.context Process", "pip main", "timeit timeit", "code interact", "torch.jit load",
)  # fmt: skip


def hostile_checkpoints(marker: Path) -> Iterator[tuple[str, Writer]]:
    """Yield names and writers; what an attack would do is to create ``marker``."""
    yield from _named("safetensors", _safetensors())
    yield from _named("attack", _attacks(marker))
    yield from _named("pickle", ((name, _pt(body)) for name, body in _pickles()))
    yield from _named("zip", _zips())
    yield from _named("cut", _cut_off())
    yield from _named("legacy", _legacy())
    yield from _named("shards", _shards())
    yield from _named("distributed", _distributed(marker))
    yield from _named("megatron", _megatron())


def _named(kind: str, cases: Any) -> Iterator[tuple[str, Writer]]:
    for name, writer in cases:
        yield f"{kind} {name}", writer


def _file(name: str, content: bytes) -> Writer:
    def write(room: Path) -> Path:
        (room / name).write_bytes(content)
        return room / name

    return write


def _pt(described: bytes, **options: Any) -> Writer:
    return lambda room: archive(room / "x.pt", described, **options)


# -- safetensors -----------------------------------------------------------------------------------------


def safetensors_bytes(header: Any, size: int = 24, length: int | None = None) -> bytes:
    """Return a safetensors file; a header that is bytes is written as it is."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + bytes(size)


def _safetensors() -> Iterator[tuple[str, Writer]]:
    def entry(**changes: Any) -> dict[str, Any]:
        return {"weight": {**GOOD["weight"], **changes}}

    headers: dict[str, Any] = {
        "not json": b"{weight", "not an object": [1], "a number": 5, "a text": "x", "not utf-8": b'{"\xff": 1}',
        "entry is null": {"weight": None}, "entry is a list": {"weight": [1]}, "no type": {"weight": {"shape": [2, 3], "data_offsets": [0, 24]}},
        "deep": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "digits": b'{"a":' + b"9" * 10_000 + b"}",
        "no shape": {"weight": {"dtype": "F32", "data_offsets": [0, 24]}}, "no offsets": {"weight": {"dtype": "F32", "shape": [2, 3]}},
        "shape text": entry(shape="23"), "shape negative": entry(shape=[-2, -3]), "shape float": entry(shape=[2.0, 3]),
        "shape bool": entry(shape=[True, 6]), "shape huge": entry(shape=[2**62, 2**62]), "shape many": entry(shape=[1] * 100_000),
        "shape overflow": entry(shape=[2**64 // 4, 4]), "shape other": entry(shape=[3, 3]), "shape null": entry(shape=None),
        "type number": entry(dtype=4), "type unknown": entry(dtype="F31"), "type other": entry(dtype="F64"), "type list": entry(dtype=["F32"]),
        "offsets one": entry(data_offsets=[0]), "offsets three": entry(data_offsets=[0, 1, 24]), "offsets text": entry(data_offsets=["0", "24"]),
        "offsets float": entry(data_offsets=[0.0, 24.0]), "offsets reversed": entry(data_offsets=[24, 0]),
        "offsets negative": entry(data_offsets=[-24, 0]), "offsets beyond": entry(data_offsets=[0, 2**40]),
        "offsets gap": entry(data_offsets=[4, 28]), "offsets bool": entry(data_offsets=[False, 24]),
        "overlap": {**GOOD, "other": {"dtype": "F32", "shape": [2, 3], "data_offsets": [12, 36]}},
        "same bytes": {**GOOD, "other": GOOD["weight"]}, "rest": {}, "only metadata": {"__metadata__": {"a": "b"}},
    }  # fmt: skip
    for name, header in headers.items():
        yield name, _file("x.safetensors", safetensors_bytes(header))
    for length in (2**63, 2**64 - 1, 10**9, 10**4, 3, 0):
        yield f"length {length}", _file("x.safetensors", safetensors_bytes(GOOD, length=length))
    whole = safetensors_bytes(GOOD)
    for stop in range(0, len(whole), 8):
        yield f"cut at {stop}", _file("x.safetensors", whole[:stop])


# -- pickles ---------------------------------------------------------------------------------------------


def _attacks(marker: Path) -> Iterator[tuple[str, Writer]]:
    command = data(f"touch {marker}")
    for number, attack in enumerate(ATTACKS):
        module, name = attack.encode().split()
        called = b"c" + module + b"\n" + name + b"\n(" + command + b"tR"
        instance = b"(" + command + b"i" + module + b"\n" + name + b"\n"
        of_class = b"(c" + module + b"\n" + name + b"\n" + command + b"o"
        new = b"c" + module + b"\n" + name + b"\n(" + command + b"t\x81"
        stacked = data(module.decode()) + data(name.decode()) + b"\x93(" + command + b"tR"
        body = (called, instance, of_class, new, stacked)[number % 5]
        yield attack, _pt(program(b"}" + data("weight") + body + b"s"))
        yield f"{attack} legacy", _file("x.pt", _legacy_bytes(body))
        yield f"{attack} hidden", _pt(program(called + b"0}" + data("weight") + tensor() + b"s"))


def _pickles() -> Iterator[tuple[str, bytes]]:
    def of(described: bytes) -> bytes:
        return program(b"}" + data("weight") + described + b"s")

    doubled = b"]" + b"q\x00" + b"".join(b"0](h%ch%ceq%c" % (n, n, n + 1) for n in range(60))
    tuples = b"K\x01q\x00" + b"".join(b"0h%ch%c\x86q%c" % (n, n, n + 1) for n in range(60))
    bodies = {
        "memo bomb of lists": of(doubled), "memo bomb of tuples": of(tuples), "key bomb": program(b"}" + tuples + b"K\x01s"),
        "list in itself": of(b"]q\x01h\x01a"), "dict in itself": program(b"}q\x01" + data("a") + b"h\x01s"),
        "deep lists": of(b"]" * 100_000 + b"a" * 99_999), "deep tuples": of(b")" + b"\x85" * 200_000),
        "list as key": program(b"}]K\x01s"), "mark": program(b"("), "nothing": program(b""), "no end": b"\x80\x02}",
        "memo missing": program(b"h\x05"), "pop empty": program(b"0"), "extension": program(b"\x82\x01"), "next buffer": program(b"\x97"),
        "long": program(b"\x8b" + struct.pack("<i", 2**30)), "long negative": program(b"\x8b" + struct.pack("<i", -5)),
        "digits": program(b"I" + b"9" * 20_000 + b"\n"), "text length": program(b"X" + struct.pack("<I", 2**32 - 1)),
        "text length 8": program(b"\x8d" + struct.pack("<Q", 2**63)), "bytes length 8": program(b"\x8e" + struct.pack("<Q", 2**62)),
        "call of a text": of(data("os") + b")R"), "append to text": program(data("a") + b"K\x01a"), "build nothing": program(b"Nb"),
        "reference number": of(b"K\x01Q"), "reference text": of(b"P0\n"), "reference short": of(b"(" + data("storage") + b"tQ"),
        "negative strides": of(tensor(strides=(-3, -1))), "negative shape": of(tensor(shape=(-2, 3))), "negative offset": of(tensor(offset=-1)),
        "huge shape": of(tensor(shape=(2**40, 2**40))), "huge stride": of(tensor(strides=(2**60, 1))), "huge offset": of(tensor(offset=2**62)),
        "expanded": of(tensor(shape=(2**30, 6), strides=(0, 1))), "many dimensions": of(tensor(shape=(1,) * 1000, strides=(1,) * 1000)),
        "float shape": of(tensor(shape=(2.0, 3.0))), "text shape": of(tensor(shape=("2", "3"))), "shape is a dict": of(tensor(shape={})),
        "strides missing": of(tensor(strides=(1,))), "unknown type": of(tensor(place=storage(b"ctorch\nOddStorage\n"))),
        "no storage": of(tensor(place=data("0"))), "missing storage": of(tensor(place=storage(key="7"))),
        "storage path": of(tensor(place=storage(key="../../../etc/passwd"))), "few arguments": of(V2 + b"(" + storage() + b"tR"),
        "sparse": of(b"ctorch._utils\n_rebuild_sparse_tensor\n)R"), "unknown tensor": of(b"ctorch._utils\n_rebuild_odd\n)R"),
        "wrapped": of(b"ctorch._utils\n_rebuild_parameter\n)R"), "wrapped in itself": of(b"ctorch._utils\n_rebuild_from_type_v2\n(NNNtR"),
        "a number": program(b"K\x01"), "a text": program(data("weights")), "only settings": program(data({"lr": 1.0})),
    }  # fmt: skip
    yield from bodies.items()


# -- archives --------------------------------------------------------------------------------------------


def _good() -> bytes:
    file = io.BytesIO()
    torch.save({"weight": torch.ones(2, 3)}, file)
    return file.getvalue()


def _patched(old: bytes, new: bytes, *, is_last: bool = True) -> bytes:
    whole = _good()
    start = whole.rindex(old) if is_last else whole.index(old)
    return whole[:start] + new + whole[start + len(old) :]


def _zips() -> Iterator[tuple[str, Writer]]:
    described = program(b"}" + data("weight") + tensor() + b"s")
    yield "bomb", _pt(described, storages={"0": bytes(1 << 22)}, compression=zipfile.ZIP_DEFLATED)
    yield "bomb pickle", _pt(program(data(" " * (1 << 22))), compression=zipfile.ZIP_DEFLATED)
    yield "bzip2", _pt(described, compression=zipfile.ZIP_BZIP2, compress_only="data/")
    yield "short storage", _pt(described, storages={"0": ONES[:-1]})
    yield "empty storage", _pt(described, storages={"0": b""})
    yield "byte order", _pt(described, byteorder=b"middle")
    for names in (
        [],
        ["x/data"],
        ["a/data.pkl", "b/data.pkl"],
        ["data.pkl"],
        ["x/data.pkl", "x/constants.pkl"],
    ):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as written:
            for name in names:
                written.writestr(name, described)
        yield f"members {len(names)} {'-'.join(names)[:12]}", _file("x.pt", file.getvalue())
    entry = b"PK\x01\x02"
    position = _good().rindex(entry)
    for name, place, value in (
        ("offset", 42, 2**31),
        ("size", 24, 2**31 - 1),
        ("name", 28, 2**15),
        ("method", 10, 99),
        ("flags", 8, 1),
    ):
        whole = bytearray(_good())
        form = "<I" if name in ("offset", "size") else "<H"
        for start in range(len(whole) - 4):
            if whole[start : start + 4] == entry and start <= position:
                struct.pack_into(form, whole, start + place, value)
        yield f"directory {name}", _file("x.pt", bytes(whole))
    yield "no directory", _file("x.pt", b"PK\x03\x04" + bytes(100))
    yield "only an end", _file("x.pt", b"PK\x05\x06" + bytes(18))
    yield "text", _file("x.pt", b"hello")
    yield "empty", _file("x.pt", b"")
    yield "bare pickle", _file("x.pt", pickle.dumps({"weight": 1}, 2))
    yield "tar", _file("x.pt", bytes(257) + b"ustar" + bytes(300))
    yield "proto", _file("x.ckpt", b"\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")


def _cut_off() -> Iterator[tuple[str, Writer]]:
    whole = _good()
    for stop in range(len(whole) // 30, len(whole), len(whole) // 30):
        yield f"at {stop}", _file("x.pt", whole[:stop])


# -- files without an archive ----------------------------------------------------------------------------


def _legacy_bytes(body: bytes = b"", keys: Any = ("0",), count: int = 6, content: bytes = ONES) -> bytes:
    described = program(b"}" + data("weight") + (body or tensor()) + b"s")
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    head = [pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, system)]
    return b"".join([*head, described, pickle.dumps(list(keys), 2), struct.pack("<q", count), content])


def _legacy() -> Iterator[tuple[str, Writer]]:
    whole = _legacy_bytes()
    for stop in range(15, len(whole), len(whole) // 16):
        yield f"cut at {stop}", _file("x.pt", whole[:stop])
    for count in (-1, 7, 2**40, 2**62, 5, 0):
        yield f"count {count}", _file("x.pt", _legacy_bytes(count=count))
    yield "keys", _file("x.pt", _legacy_bytes(keys=("1",)))
    yield "list in itself", _file("x.pt", _legacy_bytes(b"]q\x01h\x01a"))
    yield "no keys", _file("x.pt", _legacy_bytes(keys=()))


# -- directories -----------------------------------------------------------------------------------------


def _index(shard: Any, prepare: Callable[[Path], object] = lambda room: None) -> Writer:
    def write(room: Path) -> Path:
        directory = room / "model"
        directory.mkdir()
        (room / "outside.safetensors").write_bytes(safetensors_bytes(GOOD))
        prepare(directory)
        index = {"weight_map": {"weight": shard}}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
        return directory

    return write


def _shards() -> Iterator[tuple[str, Writer]]:
    for name in (
        "../outside.safetensors", "/etc/passwd", "a/../../outside.safetensors", "..", ".", "", "a\\b", "a\0b", "sub/x.safetensors",
        "missing.safetensors", 5, None, ["x"], {"a": 1}, "~/x", "x" * 5000,
    ):  # fmt: skip
        yield f"named {str(name)[:40]!r}", _index(name)
    shard = "x.safetensors"
    yield "loop", _index(shard, lambda room: (room / shard).symlink_to(shard))
    yield "dangling", _index(shard, lambda room: (room / shard).symlink_to("nowhere"))
    yield "device", _index(shard, lambda room: (room / shard).symlink_to("/dev/zero"))
    yield "text", _index(shard, lambda room: (room / shard).symlink_to("/etc/passwd"))
    yield "pipe", _index(shard, lambda room: os.mkfifo(room / shard))
    yield "directory", _index(shard, lambda room: (room / shard).mkdir())
    for text in (
        "",
        "[]",
        "{}",
        '{"weight_map": []}',
        '{"weight_map": {}}',
        '{"weight_map": 5}',
        "[" * 10_000,
        "nul\0",
    ):
        yield f"index {text[:20]!r}", _file("x.safetensors.index.json", text.encode())


def _distributed(marker: Path) -> Iterator[tuple[str, Writer]]:
    def directory(metadata: bytes) -> Writer:
        def write(room: Path) -> Path:
            (room / "dcp").mkdir()
            (room / "dcp" / ".metadata").write_bytes(metadata)
            return room / "dcp"

        return write

    yield "attack", directory(program(b"cposix\nsystem\n(" + data(f"touch {marker}") + b"tR"))
    yield "a number", directory(program(b"K\x01"))
    yield "empty", directory(b"")
    yield "no fields", directory(program(b"ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81"))
    for change in ("../x", "/etc/passwd", "..", "", "a\0b", "missing.distcp"):
        yield f"path {change!r}", _changed_index("relative_path", change)
    for key, value in (
        ("offset", -1),
        ("offset", 2**60),
        ("length", 2**60),
        ("length", 0),
        ("length", 1.5),
        ("offset", None),
    ):
        yield f"{key} {value}", _changed_index(key, value)


def _changed_index(key: str, value: Any) -> Writer:
    def write(room: Path) -> Path:
        import torch.distributed.checkpoint as dcp

        path = room / "dcp"
        dcp.save({"weight": torch.ones(2, 3)}, checkpoint_id=path, no_dist=True)
        metadata = pickle.loads((path / ".metadata").read_bytes())
        for info in metadata.storage_data.values():
            setattr(info, key, value)
        (path / ".metadata").write_bytes(pickle.dumps(metadata))
        return path

    return write


def _megatron() -> Iterator[tuple[str, Writer]]:
    def root(latest: str, *ranks: str) -> Writer:
        def write(room: Path) -> Path:
            path = room / "root"
            path.mkdir()
            (path / "latest_checkpointed_iteration.txt").write_text(latest)
            for rank in ranks:
                directory = path / "iter_0000010" / rank
                directory.mkdir(parents=True)
                torch.save({"model": {"weight": torch.ones(2, 3)}}, directory / "model_optim_rng.pt")
            return path

        return write

    for text in ("", "ten", "../..", "-1", "99", "9" * 50, "release"):
        yield f"latest {text!r}", root(text)
    digits = "1" * 5000
    for name in (f"model{digits}", "models"):
        yield f"key {name[:9]}", lambda room, name=name: _one_rank(room, {name: {"weight": torch.ones(2, 3)}})
    yield "missing rank", root("10", "mp_rank_01")
    yield "missing stage", root("10", "mp_rank_00_000", "mp_rank_01_001")
    yield "empty rank", lambda room: _empty_rank(root("10", "mp_rank_00")(room))


def _one_rank(room: Path, content: Any) -> Path:
    directory = room / "root" / "mp_rank_00"
    directory.mkdir(parents=True)
    torch.save(content, directory / "model_optim_rng.pt")
    return directory.parent


def _empty_rank(path: Path) -> Path:
    (path / "iter_0000010" / "mp_rank_00" / "model_optim_rng.pt").unlink()
    return path
