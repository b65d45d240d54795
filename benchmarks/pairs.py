"""Benchmark of the verdict on pairs of runs: ``python3 make.py bench pairs [--work DIR] [MODEL …]``.

Small models of transformers are trained for three steps and recorded with statistics. Pairs that differ by
rounding only (number of threads, instruction set, fused optimizer, bfloat16) should not be ``DIVERGED``; a
run with a planted fault on another instruction set should be, and its first cause should name the fault.
Printed are the pairs that are not as they should be, and the counts. With ``--work`` recorded runs are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BASE = {"OMP_NUM_THREADS": "2"}
OTHER_INSTRUCTIONS = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
BFLOAT16 = {"PAIR_AMP": "1"}
RUNS = {
    "base": BASE,
    "threads": {"OMP_NUM_THREADS": "1"},
    "instructions": BASE | OTHER_INSTRUCTIONS,
    "fused": BASE | {"PAIR_FUSED": "1"},
    "bfloat16": BASE | BFLOAT16,
    "bfloat16-instructions": BASE | BFLOAT16 | OTHER_INSTRUCTIONS,
}
"""Environment variables of the runs of a model."""
ROUNDING = (
    ("threads", "base"), ("instructions", "base"), ("fused", "base"), ("bfloat16-instructions", "bfloat16"),
    ("bfloat16", "base"),
)  # fmt: skip
"""Pairs, target and golden, that differ by rounding only."""
FAULTS = {
    "eps": "0.01 against",
    "scale": "scaled_dot_product_attention",
    "decay": "weight_decay",
    "stale": "mul_",
    "half": "gradients agree",
    "accumulated": "adds the gradients",
}
"""For each fault, a part of the statement or the call of a first cause that names it."""
UNSUITED = {("t5", "scale")}
"""Models and faults that do not occur in them: T5 does not call ``scaled_dot_product_attention``."""
MODELS = ("llama", "bert", "vit", "gpt2", "mixtral", "t5")

TRAINING = """
import math, os, sys
import torch
import torch.nn.functional as F
import transformers as t
name, fault = sys.argv[1], os.environ.get("PAIR_FAULT", "")
if fault == "scale":
    plain, seen = F.scaled_dot_product_attention, [0]
    def attention(q, *rest, **named):
        seen[0] += 1
        if seen[0] % 3 == 2:
            named["scale"] = 1.02 / math.sqrt(q.shape[-1])
        return plain(q, *rest, **named)
    F.scaled_dot_product_attention = attention
torch.manual_seed(0)
generator = torch.Generator().manual_seed(1)
size = dict(hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128, vocab_size=199)
words = lambda: torch.randint(3, 199, (4, 32), generator=generator)
def text():
    tokens = words()
    return dict(input_ids=tokens, labels=tokens)
image = lambda: dict(pixel_values=torch.randn(4, 3, 32, 32, generator=generator), labels=torch.arange(4))
pair = lambda: dict(input_ids=words(), labels=words())
none = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model, batch = {
    "llama": lambda: (t.LlamaForCausalLM(t.LlamaConfig(**size, num_key_value_heads=2)), text),
    "mixtral": lambda: (t.MixtralForCausalLM(
        t.MixtralConfig(**size, num_key_value_heads=2, num_local_experts=4)), text),
    "bert": lambda: (t.BertForMaskedLM(t.BertConfig(**size, **none)), text),
    "gpt2": lambda: (t.GPT2LMHeadModel(t.GPT2Config(
        n_embd=64, n_layer=3, n_head=4, vocab_size=199, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0)), text),
    "t5": lambda: (t.T5ForConditionalGeneration(t.T5Config(
        d_model=64, d_ff=128, d_kv=16, num_layers=2, num_heads=4, vocab_size=199, dropout_rate=0.0,
        decoder_start_token_id=0)), pair),
    "vit": lambda: (t.ViTForImageClassification(t.ViTConfig(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128, image_size=32,
        patch_size=8, num_labels=10, **none)), image),
}[name]()
weights = list(model.parameters())
if fault == "eps":
    norms = [m for m in model.modules() if hasattr(m, "eps") or hasattr(m, "variance_epsilon")]
    norm = norms[len(norms) // 2]
    setattr(norm, "eps" if hasattr(norm, "eps") else "variance_epsilon", 1e-2)
if fault == "stale":
    with torch.no_grad():
        [one for one in weights if one.ndim > 1][-1].mul_(1.001)
optimizer = torch.optim.AdamW(
    weights, lr=1e-3, fused=bool(os.environ.get("PAIR_FUSED")) or None,
    weight_decay=0.1 if fault == "decay" else 0.01)
model.train()
for step in range(3):
    with torch.autocast("cpu", torch.bfloat16, enabled=bool(os.environ.get("PAIR_AMP"))):
        loss = model(**batch()).loss
    loss.backward()
    if fault == "half" and step == 1:
        for one in weights[:4]:
            if one.grad is not None:
                one.grad.mul_(0.5)
    optimizer.step()
    if fault != "accumulated" or step:
        optimizer.zero_grad()
"""


def record(directory: Path, model: str, run: str, variables: dict[str, str]) -> Path:
    """Record a run unless it is there, and return its directory."""
    output = directory / f"{model}-{run}"
    if not output.exists():
        script = directory / "training.py"
        script.write_text(TRAINING, "utf-8")
        command = [sys.executable, "-m", "probe_core.cli", "run", "-o", str(output), str(script), model]
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{output.name}: {done.stderr[-2000:]}")
    return output


def compare(target: Path, golden: Path) -> dict[str, object]:
    """Compare two runs, and return the answer file."""
    with tempfile.TemporaryDirectory() as output:
        command = [sys.executable, "-m", "probe_core.cli", "compare", str(target), str(golden), "-o", output,
                   "--format", "csv"]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        (file,) = Path(output).glob("answer_*.json")
        answer: dict[str, object] = json.loads(file.read_text("utf-8"))
        return answer


def names(answer: dict[str, object], word: str) -> bool:
    """Return True if the first cause names a fault."""
    causes = answer["causes"]
    if answer["verdict"] != "DIVERGED" or not isinstance(causes, list) or not causes:
        return False
    return word in f"{causes[0]['op']} {causes[0]['statement']}"


def main() -> None:
    """Record and compare all pairs, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--work", type=Path, help="directory in which recorded runs are kept and used again")
    options = parser.parse_args()
    counts = {"AGREE": 0, "CANNOT TELL": 0, "NOT COMPARABLE": 0, "DIVERGED": 0}
    right = faults = 0
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.work or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        for model in options.models or MODELS:
            runs = {name: record(directory, model, name, variables) for name, variables in RUNS.items()}
            for target, golden in ROUNDING:
                answer = compare(runs[target], runs[golden])
                counts[str(answer["verdict"])] += 1
                if answer["verdict"] != "AGREE":
                    print(f"{model}, {target} against {golden}: {answer['sentence']}", flush=True)
            for fault, word in FAULTS.items():
                if (model, fault) in UNSUITED:
                    continue
                run = record(directory, model, fault, BASE | OTHER_INSTRUCTIONS | {"PAIR_FAULT": fault})
                answer = compare(run, runs["base"])
                faults += 1
                right += names(answer, word)
                if not names(answer, word):
                    print(f"{model}, fault {fault}: {answer['sentence']}", flush=True)
    print(f"rounding: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}")
    print(f"faults: {right} of {faults} named first")


if __name__ == "__main__":
    main()
