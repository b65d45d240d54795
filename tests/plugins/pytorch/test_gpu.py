"""The launcher of the GPU kernels: with stand-ins for the kernels in host memory, and with a GPU where there is one."""

import struct
import zlib
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from probe_pytorch import gpu
from probe_pytorch.statistics import decode_results, measure
from probe_pytorch.storage.host_bytes import CHECKSUMS, format_crc32

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int16, torch.int8, torch.uint8, torch.int64)


class Kernel:
    """A stand-in for a kernel: ``kernel[grid](*arguments)`` calls a function on the tensors."""

    def __init__(self, function):
        self.function, self.grids = function, []

    def __getitem__(self, grid):
        self.grids.append(grid)
        return self.function


def measure_in_host_memory(elements, results, finished, sums, extrema, count, row, least, most, block, programs):
    assert count == elements.numel() and not finished.item() and sums.numel() == extrema.numel() == 2 * 2**programs
    assert extrema.dtype != torch.int64 or results.dtype == torch.int64
    compared = elements.to(extrema.dtype)
    assert least <= compared.min().item() and compared.max().item() <= most
    mean, norm = elements.double().mean().item(), elements.double().norm().item()
    if results.dtype == torch.int64:
        mean, norm = struct.unpack("=qq", struct.pack("=dd", mean, norm))
    results[row] = torch.tensor([compared.max(), compared.min(), mean, norm], dtype=results.dtype)


def checksum_in_host_memory(octets, results, finished, states, table, count, row, level, of_zeros, block, programs):
    """Advance the state 0 by the table, word by word, as one lane of one program does."""
    rows = table.view(-1, 32).tolist()
    data = bytes(-count % 4) + bytes(octets.tolist())
    state = 0
    for (word,) in struct.iter_unpack("<I", data):
        state ^= word
        state = _apply([image & 0xFFFFFFFF for image in rows[0]], state)
    results[row] = struct.unpack("=i", struct.pack("=I", state ^ (of_zeros & 0xFFFFFFFF)))[0]


def _apply(row, state):
    result = 0
    for bit, image in enumerate(row):
        result ^= image if state >> bit & 1 else 0
    return result


@pytest.fixture
def launcher():
    return gpu.Launcher(
        SimpleNamespace(measure=Kernel(measure_in_host_memory), checksum=Kernel(checksum_in_host_memory)), False
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_statistics_are_decoded_as_those_of_host_memory(launcher, dtype):
    tensor = torch.tensor([3, 1, 100, 7, 0]).to(dtype)
    assert decode_results(launcher.measure(tensor, 0).tolist(), dtype) == pytest.approx(measure(tensor), rel=1e-15)


def test_int64_keeps_all_digits(launcher):
    tensor = torch.tensor([2**62 + 1, -(2**63), 5])
    high, low, *_ = decode_results(launcher.measure(tensor, 0).tolist(), torch.int64)
    assert (high, low) == (2**62 + 1, -(2**63))


def test_each_result_has_its_own_row(launcher):
    results = [launcher.measure(torch.tensor([float(i)]), 0) for i in range(1500)]
    assert [result[0].item() for result in results] == list(range(1500))


def test_large_tensors_are_shared_by_more_programs(launcher):
    for count in (1, 4096, 4097, 8_000_000):
        launcher.measure(torch.zeros(count, dtype=torch.int8), 0)
    assert [grid[0] for grid in launcher._kernels.measure.grids] == [1, 1, 2, 256]


@given(data=st.binary(min_size=1, max_size=40))
def test_checksum_is_that_of_zlib(data):
    launcher = gpu.Launcher(SimpleNamespace(checksum=Kernel(checksum_in_host_memory)), False)
    result = launcher.checksum(torch.tensor(list(data), dtype=torch.uint8), 0).item()
    assert format_crc32(result) == f"{zlib.crc32(data):08x}"


@given(count=st.integers(0, 100_000))
def test_checksum_of_zeros_is_that_of_zlib(count):
    assert gpu.checksum_zeros(count) == zlib.crc32(bytes(count))


@given(level=st.integers(0, 12), state=st.integers(0, 2**32 - 1))
def test_rows_of_the_table_advance_a_state_past_zeros(level, state):
    # zlib inverts the state before and after the bytes
    expected = zlib.crc32(bytes(4 * 2**level), state ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
    assert _apply(gpu.compute_table()[level], state) == expected


def test_compiled_kernels_are_launched_again_by_address():
    launches = []

    def run(*arguments, stream):
        launches.append((arguments, stream))

    kernel = Kernel(lambda *arguments: {(1, 1, 1): run})
    launcher = gpu.Launcher(SimpleNamespace(measure=kernel), True)
    tensor = torch.ones(8)
    for _ in range(3):
        launcher.measure(tensor, 7)
    assert len(kernel.grids) == 1 and [stream for _, stream in launches] == [7, 7]
    assert launches[0][0][0] == tensor.data_ptr() and launches[0][0][5:7] == (8, 1)
    launcher.measure(tensor[1:], 7)  # not aligned to 16 bytes, so it needs a kernel of its own
    assert len(kernel.grids) == 2


def test_a_kernel_that_fails_is_reported_and_not_used_again(monkeypatch, capsys):
    calls = []

    def fail(*arguments):
        calls.append(arguments)
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: -1)
    monkeypatch.setattr(gpu, "get_raw_stream", lambda index: 0)
    launcher = gpu.Launcher(SimpleNamespace(measure=Kernel(fail)), True)
    assert [launcher.launch(launcher.measure, torch.ones(3)) for _ in range(2)] == [None, None]
    assert len(calls) == 1
    assert capsys.readouterr().err.splitlines() == [
        "probe: Recording takes longer, because its kernels cannot run on this GPU (RuntimeError: no compiler)"
    ]


def test_no_kernel_is_launched_while_a_graph_is_captured(monkeypatch, launcher):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert launcher.launch(launcher.measure, torch.ones(3)) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("count", (1, 3, 1024, 100_003, 5_000_000))
@pytest.mark.parametrize("dtype", (*DTYPES, torch.bool))
def test_kernels_agree_with_host_memory(dtype, count):
    host = (torch.randn(count) * 30).abs().to(dtype)
    results = gpu.measure_on_gpu(host.cuda())
    expected = measure(host) if dtype is torch.bool else pytest.approx(measure(host), rel=1e-13)
    assert decode_results(results.tolist(), dtype) == expected
    assert format_crc32(gpu.checksum_on_gpu(host.cuda()).item()) == CHECKSUMS["md5"](host)
