"""Benchmark of golden tests: CPU time of tests with and without ``probe_golden``.

The tests run a Llama of two layers on one thread, the forward pass alone or with the backward pass, in two sizes:
``tiny`` has hidden size 64 and 2 x 64 tokens, ``small`` has hidden size 512 and 2 x 128 tokens. Each runs several
times in one process; the result is the median of the whole tests, with the creation of the model. ``first`` is the
first test with ``probe_golden`` of the process, which loads the recorder. ``size`` is that of the golden file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

REPEATS = 7
CONFTEST = """
import time
import pytest

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    begun = time.process_time()
    result = yield
    with open("times.txt", "a") as file:
        print(item.name.partition("[")[0], item.callspec.params["size"], time.process_time() - begun, file=file)
    return result
"""
TESTS = """
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"tiny": (64, 128, 4, 64), "small": (512, 1376, 8, 128)}
torch.set_num_threads(1)
pytestmark = [pytest.mark.parametrize("number", range(REPEATS)), pytest.mark.parametrize("size", SIZES)]


def create(size):
    hidden, inner, heads, length = SIZES[size]
    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=hidden, intermediate_size=inner, num_attention_heads=heads, num_hidden_layers=2,
                         vocab_size=1000, use_cache=False)
    return LlamaForCausalLM(config).eval(), torch.randint(0, 1000, (2, length))


def test_forward_plain(size, number):
    model, words = create(size)
    model(words)


def test_forward_golden(probe_golden, size, number):
    model, words = create(size)
    probe_golden.check(model, words)


def test_backward_plain(size, number):
    model, words = create(size)
    model(words, labels=words).loss.backward()


def test_backward_golden(probe_golden, size, number):
    model, words = create(size)
    with probe_golden.record(model):
        model(words, labels=words).loss.backward()
"""


def main() -> None:
    """Write the golden files, run the tests, and print the times."""
    with tempfile.TemporaryDirectory(prefix="probe-cost-") as temporary:
        work = Path(temporary)
        (work / "conftest.py").write_text(CONFTEST)
        (work / "test_cost.py").write_text(f"REPEATS = {REPEATS}\n{TESTS}")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        subprocess.run([*command, "--probe-update", "-k", "golden"], cwd=work, check=True, stdout=subprocess.DEVNULL)
        (work / "times.txt").unlink()
        subprocess.run(command, cwd=work, check=True, stdout=subprocess.DEVNULL)
        times: dict[tuple[str, str], list[float]] = {}
        for line in (work / "times.txt").read_text().splitlines():
            name, size, seconds = line.split()
            times.setdefault((name, size), []).append(float(seconds))
        for test in ("forward", "backward"):
            for size in ("tiny", "small"):
                plain, golden = (times[f"test_{test}_{kind}", size] for kind in ("plain", "golden"))
                file = next(work.glob(f"goldens/test_cost/test_{test}_golden-*{size}*.json"))
                print(
                    f"{test:8} {size:5}  plain {median(plain) * 1e3:4.0f} ms  golden {median(golden) * 1e3:4.0f} ms  "
                    f"ratio {median(golden) / median(plain):.2f}  first {golden[0] * 1e3:4.0f} ms  "
                    f"size {file.stat().st_size:,} bytes"
                )


if __name__ == "__main__":
    main()
