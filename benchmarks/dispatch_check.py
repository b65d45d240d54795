"""Cost of DispatchCheck: CPU time of a training step of a small Llama, with and without the check.

Run it with ``python benchmarks/dispatch_check.py``. It needs transformers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable

import torch
from probe_pytorch import DispatchCheck
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = ((64, 32), (256, 128), (512, 256))
DTYPES = (torch.float32, torch.bfloat16)
WORDS = 1000


def least_cpu_seconds(function: Callable[[], None], repeats: int) -> float:
    """Return the least CPU time of several calls."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def step_of(hidden: int, length: int, dtype: torch.dtype) -> Callable[[], None]:
    """Return a training step."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=WORDS,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters())
    words = torch.randint(WORDS, (2, length))

    def step() -> None:
        optimizer.zero_grad()
        model(input_ids=words, labels=words).loss.backward()
        optimizer.step()

    return step


def main() -> None:
    """Print a row for each size and dtype."""
    torch.set_num_threads(1)
    for hidden, length in SIZES:
        for dtype in DTYPES:
            step = step_of(hidden, length, dtype)
            step()
            bare = least_cpu_seconds(step, 3)
            with tempfile.TemporaryDirectory() as directory, DispatchCheck(directory) as check:
                checked = least_cpu_seconds(step, 2)
            print(
                f"hidden {hidden}, {length} tokens, {dtype}: {1000 * bare:.0f} ms, checked {checked:.2f} s, "
                f"factor {checked / bare:.0f}, {check.counts.compared // 2} calls"
            )


if __name__ == "__main__":
    main()
