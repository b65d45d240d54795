"""Damage that may befall any file: to its bytes, or to the file as a whole."""

from __future__ import annotations

import os
import random
import shutil

from support.faults.mutations.case import Case, put

# -- to its bytes ------------------------------------------------------------------------------


def flip(rng: random.Random, data: bytes) -> bytes:
    """Other values in a few bytes."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 50))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def cut(rng: random.Random, data: bytes) -> bytes:
    """The beginning alone."""
    return data[: rng.randrange(len(data))]


def drop_slice(rng: random.Random, data: bytes) -> bytes:
    """Without some bytes in the middle."""
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.choice((1, 7, 100, 4096)) :]


def empty(rng: random.Random, data: bytes) -> bytes:
    """Nothing, or nothing that counts."""
    return rng.choice((b"", b" \n", b"\xef\xbb\xbf", b"\x00" * 100))


def tail(rng: random.Random, data: bytes) -> bytes:
    """More after the end."""
    return data + rng.choice((b"x", b"}", data, b"\x00", b"\xff" * 5))


def not_utf8(rng: random.Random, data: bytes) -> bytes:
    """Text in another encoding, or with bytes that are no text."""
    if rng.random() < 0.1:
        return data.decode("utf-8").encode("utf-16")
    start = rng.randrange(len(data))
    stray = rng.choice((b"\xff", b"\xed\xa0\x80", b"\xc3", b"\x80\x81", b"\xef\xbb\xbf"))
    return data[:start] + stray + data[start + rng.randrange(2) :]


# -- to the file as a whole --------------------------------------------------------------------


def record_deleted(case: Case) -> None:
    """No record, or a directory of its name."""
    path = case.rng.choice(case.records())
    path.unlink()
    if case.rng.random() < 0.5:
        path.mkdir()


def record_mistaken(case: Case) -> None:
    """Another JSON file in the place of a record."""
    records = case.records()
    other = case.rng.choice([*records, *case.stacks(), *case.compare()])
    put(case.rng.choice(records), other.read_bytes())


def tensor_mistaken(case: Case) -> None:
    """Another tensor's file in the place of a tensor's."""
    paths = case.tensors()
    put(case.rng.choice(paths), case.rng.choice(paths).read_bytes())


def tensor_no_file(case: Case) -> None:
    """A directory, a fifo or a link in the place of a tensor file."""
    path = case.rng.choice(case.tensors())
    path.unlink()
    form = case.rng.random()
    if form < 0.4:
        path.mkdir()
    elif form < 0.5:
        os.mkfifo(path)
    else:
        path.symlink_to(case.rng.choice(("/etc/passwd", "/dev/zero", path.name, "../dump.json", "nowhere")))


def tensors_deleted(case: Case) -> None:
    """Some tensor files are gone, or all of them."""
    paths = case.tensors()
    for path in case.rng.sample(paths, case.rng.choice((1, 3, len(paths) // 2, len(paths)))):
        path.unlink()


def tensor_directory_deleted(case: Case) -> None:
    """No directory of tensor files, or a file of its name."""
    directory = case.rng.choice(case.tensors()).parent
    shutil.rmtree(directory)
    if case.rng.random() < 0.5:
        directory.write_bytes(b"no directory")
