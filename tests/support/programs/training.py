"""Tiny training programs, and a way to run one that tells every bit of what came out.

``run(PROGRAMS["llama"], VARIANTS["bf16"])`` is an ``Outcome``; ``differences`` names what differs between two.
A recorder that changes no bit leaves none. Weights are random and seeded, nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import itertools
import math
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, parametrizations
from torch.utils.checkpoint import checkpoint

StepFunction = Callable[[nn.Module, int], Tensor]
Built = tuple[nn.Module, StepFunction, torch.optim.Optimizer]

VOCABULARY, BATCH, LENGTH, WIDTH, HEADS = 64, 2, 12, 32, 4
BATCHES = 6
"""How many batches a program goes round: as many as three steps of two micro batches take."""


class Recorder(Protocol):
    """What is put around a training step."""

    def start(self, model: nn.Module) -> object: ...

    def stop(self) -> object: ...

    def step(self) -> object: ...


@dataclass(frozen=True)
class Program:
    """A training program: ``build()`` seeds everything and makes a model, its step and its optimizer."""

    name: str
    build: Callable[[], Built]
    needs: str | None = None
    """A package without which it cannot be built."""
    variants: tuple[str, ...] = ("plain", "bf16", "accumulate")
    """How it can be run."""


@dataclass(frozen=True)
class Variant:
    """A way of running any program."""

    name: str
    micro: int = 1
    """Micro batches an optimizer step."""
    autocast: bool = False
    """Whether the forward pass runs in bfloat16."""
    reentrant: bool | None = None
    """The kind of activation checkpointing; None is none."""

    def prepare(self, model: nn.Module) -> None:
        """Turn activation checkpointing on in a model that has it."""
        if self.reentrant is not None:
            inner = getattr(model, "module", model)  # of DistributedDataParallel
            inner.gradient_checkpointing_enable({"use_reentrant": self.reentrant})

    def forward(self) -> contextlib.AbstractContextManager[object]:
        """What the forward pass runs in."""
        return torch.autocast("cpu", torch.bfloat16) if self.autocast else contextlib.nullcontext()


@dataclass
class Outcome:
    """All that a training run leaves behind, of tensors the hashes; JSON takes ``dataclasses.asdict`` of it."""

    losses: list[str] = field(default_factory=list)
    """The bytes of each loss, one a micro batch."""
    gradients: list[dict[str, str]] = field(default_factory=list)
    """Of each step, as the optimizer finds them."""
    values: dict[str, str] = field(default_factory=dict)
    """Parameters and buffers after the last step."""
    optimizer: dict[str, str] = field(default_factory=dict)
    """What the optimizer remembers after the last step."""
    random: dict[str, str] = field(default_factory=dict)
    """The state of each generator after the last step."""
    modes: dict[str, str] = field(default_factory=dict)
    """What the process is set to after the last step."""

    def items(self) -> Iterator[tuple[str, str]]:
        """Everything, under names that ``differences`` can say."""
        micro = max(1, len(self.losses) // max(1, len(self.gradients)))
        losses = iter(enumerate(self.losses))
        for step, gradients in enumerate(self.gradients):
            for number, loss in itertools.islice(losses, micro):
                yield f"loss {number}", loss
            for name, digest in gradients.items():
                yield f"gradient of {name} in step {step}", digest
        for number, loss in losses:
            yield f"loss {number}", loss
        for name, digest in self.values.items():
            yield f"{name} after the last step", digest
        for name, digest in self.optimizer.items():
            yield f"optimizer's {name}", digest
        for name, digest in self.random.items():
            yield f"random state of {name}", digest
        for name, value in self.modes.items():
            yield f"mode {name}", value


def differences(a: Outcome, b: Outcome) -> list[str]:
    """What differs between two outcomes, step by step, then in the end; no tolerance."""
    first, second = dict(a.items()), dict(b.items())
    return [
        f"{name}: {first.get(name, 'missing')} and {second.get(name, 'missing')}"
        for name in first | second
        if first.get(name) != second.get(name)
    ]


def raw(tensor: Tensor) -> bytes:
    """The elements of a tensor in order, byte for byte.

    Read from its memory and by no operator, for a recorder may be listening.
    """
    with torch._C.DisableTorchFunction():
        if tensor.is_sparse:
            return raw(tensor._indices()) + raw(tensor._values())
        tensor = getattr(tensor, "_local_tensor", tensor)
        assert tensor.device.type == "cpu" and not tensor.is_neg() and not tensor.is_conj()
        shape, strides, width = tuple(tensor.shape), tensor.stride(), tensor.element_size()
        if 0 in shape:
            return b""
        span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
        memory = ctypes.string_at(tensor.data_ptr(), span * width)
    return np.ndarray(shape, f"V{width}", memory, 0, tuple(stride * width for stride in strides)).tobytes()


def digest(value: object) -> str:
    """A text that differs where a bit of a tensor, its dtype or its shape differs."""
    if not isinstance(value, Tensor):
        return repr(value)
    with torch._C.DisableTorchFunction():
        kind = f"{value.dtype} {list(value.shape)}"
    return f"{kind} {hashlib.sha256(raw(value)).hexdigest()}"


def random_states() -> dict[str, str]:
    """The state of each random number generator."""
    states = {"torch": raw(torch.get_rng_state()), "python": repr(random.getstate()).encode()}
    kind, keys, *rest = np.random.get_state()
    states["numpy"] = kind.encode() + keys.tobytes() + repr(rest).encode()
    return {name: hashlib.sha256(state).hexdigest() for name, state in states.items()}


def modes(model: nn.Module) -> dict[str, str]:
    """The settings that a recorder might forget to put back."""
    return {
        "grad": str(torch.is_grad_enabled()),
        "inference": str(torch.is_inference_mode_enabled()),
        "autocast": str(torch.is_autocast_enabled("cpu")),
        "dtype": str(torch.get_default_dtype()),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "threads": str(torch.get_num_threads()),
        "training": str(sorted(name for name, module in model.named_modules() if module.training)),
        "trained": str(sorted(name for name, value in model.named_parameters() if value.requires_grad)),
    }


def train(
    model: nn.Module,
    step_function: StepFunction,
    optimizer: torch.optim.Optimizer,
    variant: Variant,
    steps: int = 3,
    recorder: Recorder | None = None,
) -> Outcome:
    """Train what was built, with the recorder around each step."""
    outcome = Outcome()
    variant.prepare(model)
    for step in range(steps):
        if recorder:
            recorder.start(model)
        for micro in range(variant.micro):
            with variant.forward():
                loss = step_function(model, step * variant.micro + micro)
            outcome.losses.append(raw(loss).hex())
            if variant.micro > 1:
                loss = loss / variant.micro
            loss.backward()
        with torch._C.DisableTorchFunction():
            outcome.gradients.append({name: digest(value.grad) for name, value in model.named_parameters()})
        optimizer.step()
        if recorder:
            recorder.stop()
        optimizer.zero_grad()
        if recorder:
            recorder.step()
    outcome.values = {name: digest(value) for name, value in model.named_parameters()}
    outcome.values |= {name: digest(value) for name, value in model.named_buffers()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            outcome.optimizer[f"{key} of {name}"] = digest(value)
    outcome.random = random_states()
    outcome.modes = modes(model)
    return outcome


def seed(number: int = 0) -> None:
    """Seed every generator."""
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def run(program: Program, variant: Variant, steps: int = 3, recorder: Recorder | None = None) -> Outcome:
    """Build a program and train it."""
    return train(*program.build(), variant, steps, recorder)


BOTH = ("reentrant", "nonreentrant")
PROGRAMS: dict[str, Program] = {}
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("plain"),
        Variant("bf16", autocast=True),
        Variant("accumulate", micro=2),
        Variant("reentrant", reentrant=True),
        Variant("nonreentrant", reentrant=False),
    )
}


def program(
    needs: str | None = None, checkpoints: tuple[str, ...] = ()
) -> Callable[[Callable[[], Built]], None]:
    """Put a function that builds into ``PROGRAMS``, under its name; ``checkpoints`` are further variants."""

    def add(make: Callable[[], Built]) -> None:
        def build() -> Built:
            if needs:
                importlib.import_module(needs)
            seed()
            return make()

        PROGRAMS[make.__name__] = Program(make.__name__, build, needs, Program.variants + checkpoints)

    return add


@cache
def lstm_runs_in_bf16() -> bool:
    """True where torch has a kernel for it: those of oneDNN take a processor with AVX-512, or a later one."""
    try:
        with torch.autocast("cpu", torch.bfloat16):
            nn.LSTM(2, 2)(torch.ones(1, 1, 2))[0].sum().backward()
    except RuntimeError:
        return False
    return True


def cases() -> list[tuple[Program, Variant]]:
    """Every program in every variant that it has, and that torch can run on this processor."""
    found = [(program, VARIANTS[name]) for program in PROGRAMS.values() for name in program.variants]
    unable = ("lstm", "bf16") if not lstm_runs_in_bf16() else None
    return [(program, variant) for program, variant in found if (program.name, variant.name) != unable]


# Batches


def words(length: int = LENGTH) -> list[Tensor]:
    return [torch.randint(3, VOCABULARY, (BATCH, length)) for _ in range(BATCHES)]


def reals(*shape: int) -> list[Tensor]:
    return [torch.randn(BATCH, *shape) for _ in range(BATCHES)]


def classes(count: int) -> list[Tensor]:
    return [torch.randint(0, count, (BATCH,)) for _ in range(BATCHES)]


def padded(batches: list[Tensor]) -> list[dict[str, Tensor]]:
    """Arguments of a language model: the last sequence ends early."""
    masks = torch.ones(BATCH, LENGTH, dtype=torch.long)
    masks[-1, LENGTH - 3 :] = 0
    return [
        {"input_ids": batch, "attention_mask": masks, "labels": batch.masked_fill(masks == 0, -100)}
        for batch in batches
    ]


def fit(inputs: list[Tensor], targets: list[Tensor], loss: Callable[..., Tensor]) -> StepFunction:
    """The step that measures what the model makes of an input against its target."""
    return lambda model, step: loss(model(inputs[step % BATCHES]), targets[step % BATCHES])


def next_word(logits: Tensor, batch: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1))


# Models of transformers


def pretrained(family: str, model: str, attention: str, **settings: Any) -> nn.Module:
    """A model of transformers, with the random weights that its config gives it."""
    import transformers

    config = getattr(transformers, f"{family}Config")
    make = getattr(transformers, f"{family}{model}")
    seed()  # what the imports may have drawn is not part of it
    return make(config(**settings, attn_implementation=attention))


def answering(batches: list[dict[str, Tensor]]) -> StepFunction:
    """The step of a model that measures its loss itself."""
    return lambda model, step: model(**batches[step % BATCHES]).loss


SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODER = {
    **SPECIAL,
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "attention_dropout": 0.1,
    "use_cache": False,
}


@program(needs="transformers", checkpoints=BOTH)
def llama() -> Built:
    model = pretrained("Llama", "ForCausalLM", "sdpa", **DECODER)
    return model, answering(padded(words())), torch.optim.AdamW(model.parameters(), lr=1e-3)


@program(needs="transformers", checkpoints=BOTH)
def qwen2() -> Built:
    model = pretrained("Qwen2", "ForCausalLM", "eager", **DECODER)
    return model, answering(padded(words())), torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)


@program(needs="transformers", checkpoints=BOTH)
def gemma2() -> Built:
    """Tied embeddings, a sliding window in every other layer, capped logits."""
    sizes = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4}
    model = pretrained("Gemma2", "ForCausalLM", "eager", **DECODER, **sizes)
    return model, answering(padded(words())), torch.optim.AdamW(model.parameters(), lr=1e-3)


@program(needs="transformers", checkpoints=BOTH)
def mixtral() -> Built:
    """Experts, a routing loss, and noise from the generator on what the router sees."""
    routing = {"num_local_experts": 4, "output_router_logits": True, "router_jitter_noise": 0.1}
    model = pretrained("Mixtral", "ForCausalLM", "sdpa", **DECODER, **routing)
    return model, answering(padded(words())), torch.optim.AdamW(model.parameters(), lr=1e-3)


@program(needs="transformers", checkpoints=BOTH)
def gpt2() -> Built:
    sizes = {"vocab_size": VOCABULARY, "n_positions": 32, "n_embd": WIDTH, "n_layer": 2, "n_head": HEADS}
    model = pretrained("GPT2", "LMHeadModel", "eager", **SPECIAL, **sizes, use_cache=False)
    model.loss_type = "ForCausalLM"  # else transformers warns that it takes that one
    return model, answering(padded(words())), torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)


ENCODER = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": 48,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}


@program(needs="transformers", checkpoints=BOTH)
def bert() -> Built:
    sizes = {**ENCODER, "vocab_size": VOCABULARY, "max_position_embeddings": 32, "pad_token_id": 0}
    model = pretrained("Bert", "ForMaskedLM", "sdpa", **sizes)
    return model, answering(padded(words())), torch.optim.Adam(model.parameters(), lr=1e-3)


@program(needs="transformers", checkpoints=BOTH)
def vit() -> Built:
    sizes = {**ENCODER, "image_size": 16, "patch_size": 4, "num_labels": 5}
    model = pretrained("ViT", "ForImageClassification", "eager", **sizes)
    images, labels = reals(3, 16, 16), classes(5)
    batches = [{"pixel_values": image, "labels": label} for image, label in zip(images, labels)]
    return model, answering(batches), torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


@program(needs="transformers", checkpoints=BOTH)
def t5() -> Built:
    sizes = {
        "vocab_size": VOCABULARY,
        "d_model": WIDTH,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": HEADS,
        "feed_forward_proj": "gated-gelu",
        "dropout_rate": 0.1,
        "pad_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 0,
        "use_cache": False,
    }
    model = pretrained("T5", "ForConditionalGeneration", "eager", **sizes)
    return model, answering(padded(words())), torch.optim.RMSprop(model.parameters(), lr=1e-3)


@program(needs="transformers", checkpoints=("nonreentrant",))
def whisper() -> Built:
    """Convolutions, encoder and decoder, layers left out at random, masks from numpy's generator.

    Reentrant checkpointing fails in transformers: what the decoder takes from the encoder goes around it.
    """
    sizes = {
        **SPECIAL,
        "vocab_size": VOCABULARY,
        "num_mel_bins": 8,
        "d_model": WIDTH,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "max_source_positions": 8,
        "max_target_positions": 16,
        "decoder_start_token_id": 1,
        "use_cache": False,
        "dropout": 0.1,
        "attention_dropout": 0.0,
        "activation_dropout": 0.1,
        "encoder_layerdrop": 0.2,
        "decoder_layerdrop": 0.2,
        "apply_spec_augment": True,
        "mask_time_prob": 0.3,
        "mask_time_length": 2,
        "mask_feature_prob": 0.3,
        "mask_feature_length": 2,
    }
    model = pretrained("Whisper", "ForConditionalGeneration", "sdpa", **sizes)
    sounds, texts = reals(8, 16), words()
    batches = [{"input_features": sound, "labels": text} for sound, text in zip(sounds, texts)]
    return model, answering(batches), torch.optim.AdamW(model.parameters(), lr=1e-3)


# Models of torch's own layers


class Residual(nn.Module):
    """Two convolutions around a shortcut; the rectifiers work in place."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outer)
        self.second = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.norm1(self.first(x)))
        y = self.norm2(self.second(y))
        y += self.shortcut(x)
        return self.relu(y)


@program()
def resnet() -> Built:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        Residual(8, 8, 1),
        Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(16, 5),
    )
    step = fit(reals(3, 16, 16), classes(5), F.cross_entropy)
    return model, step, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)


class Recurrent(nn.Module):
    def __init__(self, cell: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = cell(WIDTH, WIDTH, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, batch: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(batch))[0])


def recurrent(cell: type[nn.RNNBase]) -> Built:
    model, batches = Recurrent(cell), words()
    return model, fit(batches, batches, next_word), torch.optim.Adam(model.parameters(), lr=1e-2)


@program()
def lstm() -> Built:
    return recurrent(nn.LSTM)


@program()
def gru() -> Built:
    return recurrent(nn.GRU)


def mlp() -> tuple[nn.Module, StepFunction]:
    model = nn.Sequential(
        nn.Linear(WIDTH, 48),
        nn.ReLU(inplace=True),
        nn.Dropout(0.1),
        nn.Linear(48, 48),
        nn.GELU(),
        nn.Linear(48, 5),
    )
    return model, fit(reals(WIDTH), classes(5), F.cross_entropy)


@program()
def mlp_sgd() -> Built:
    model, step = mlp()
    return model, step, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@program()
def mlp_adamw() -> Built:
    """With the gradients clipped before the optimizer takes them."""
    model, step = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)

    def clip(*_: object) -> None:
        clip_grad_norm_(model.parameters(), 0.5, foreach=True)

    optimizer.register_step_pre_hook(clip)
    return model, step, optimizer


class Block(nn.Module):
    """A layer that takes and gives two values, and works in place."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 48), nn.Linear(48, WIDTH)
        self.relu, self.dropout = nn.ReLU(inplace=True), nn.Dropout(0.1)

    def forward(self, x: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        y = self.down(self.dropout(self.relu(self.up(self.norm(x)))))
        y += x
        return y, total + y * x


class Blocks(nn.Module):
    """A stack of layers, checkpointed by hand where that is asked for."""

    reentrant: bool | None = None

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def gradient_checkpointing_enable(self, settings: dict[str, bool]) -> None:
        self.reentrant = settings["use_reentrant"]

    def forward(self, batch: Tensor) -> Tensor:
        x = self.embed(batch)
        total = x * 0.5
        for block in self.blocks:
            if self.reentrant is None:
                x, total = block(x, total)
            else:
                x, total = checkpoint(block, x, total, use_reentrant=self.reentrant)
        return self.head(x + total)


@program(checkpoints=BOTH)
def blocks() -> Built:
    model, batches = Blocks(), words()
    return model, fit(batches, batches, next_word), torch.optim.AdamW(model.parameters(), lr=1e-2)


# Programs that are hard on a recorder


@dataclass
class State:
    hidden: Tensor
    history: list[Tensor]
    scale: float
    note: str | None = None


class Sides(NamedTuple):
    left: Tensor
    right: Tensor


class Reading(nn.Module):
    """A dict in, which it writes into; an ordered dict out, that holds the same tensor twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.linear = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, batch: dict[str, Any], *, noise: float = 0.0) -> OrderedDict[str, Any]:
        x = self.linear(self.embed(batch["words"])) + noise
        x.kind = "read"
        batch["seen"] = [x, {"mean": x.mean(), "nothing": None}]
        return OrderedDict(hidden=x, parts=[x[:, :6], x[:, 6:]], again=x)


class Thinking(nn.Module):
    """Changes the object it was given, and the tensors in it, and hands back that object."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.relu = nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True)
        self.dropout = nn.Dropout(0.1, inplace=True)
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, state: State) -> State:
        x = state.hidden
        y = self.linear(x)
        y.add_(x)
        y[:, 0].mul_(0.5)
        y.view(-1)[::7] += 0.25
        self.relu(self.dropout(y))
        with torch.no_grad():
            self.mean.mul_(0.9).add_(y.mean((0, 1)), alpha=0.1)
        state.history.append(y)
        state.hidden = y + x + y * state.scale
        state.note = "thought"
        return state


class Parting(nn.Module):
    """A generator in, which can be gone through once; a named tuple and a number out."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, parts: Iterator[Tensor], mean: Tensor) -> tuple[Sides, int]:
        whole = torch.cat([self.linear(part) for part in parts], 1)
        left, right = (whole - mean).unbind(0)
        return Sides(left, right), len(left)


class Answering(nn.Module):
    """A named tuple and a tuple in, an output class of transformers out."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, sides: Sides, others: tuple[Any, ...]) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        count, (first, *rest), note = others
        x = torch.stack(sides)
        assert note == "thought" and count == x.shape[1]
        x = x + first + sum(rest)
        return BaseModelOutput(last_hidden_state=self.head(x), hidden_states=(x, first))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reading, self.parting, self.answering = Reading(), Parting(), Answering()
        self.thinking = nn.ModuleList([Thinking(), Thinking()])

    def forward(self, batch: dict[str, Any]) -> Any:
        read = self.reading(batch, noise=np.random.normal(scale=0.01))
        assert read["hidden"] is read["again"] is batch["seen"][0] and read["again"].kind == "read"
        state = State(read["hidden"].clone(), history := [read["hidden"]], 0.3)
        for module in self.thinking:
            assert module(state) is state
        assert state.history is history and len(history) == 3
        if random.random() < 0.5:
            state.hidden = state.hidden.transpose(1, 2).contiguous().transpose(1, 2)
        sides, count = self.parting((part for part in state.hidden.split(4, 1)), batch["seen"][1]["mean"])
        return self.answering(sides, others=(count, history, state.note))


@program(needs="transformers")
def nested() -> Built:
    """Modules that hand each other nested values and change them in place."""
    model, batches = Nested(), words()

    def step(model: nn.Module, number: int) -> Tensor:
        batch = batches[number % BATCHES]
        out = model({"words": batch})
        return next_word(out.last_hidden_state, batch) + out["hidden_states"][1].square().mean()

    return model, step, torch.optim.AdamW(model.parameters(), lr=1e-2)


class Power(torch.autograd.Function):
    """Two outputs, one without a gradient; an argument that is no tensor; a backward of many operators."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, power: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight)
        ctx.power = power
        positive = x > 0
        ctx.mark_non_differentiable(positive)
        ctx.set_materialize_grads(False)
        return x.pow(power) * weight, positive

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, True, False)
        slope = ctx.power * x.pow(ctx.power - 1) * weight
        return gradient * slope, (gradient * x.pow(ctx.power)).sum(dim=(0, 1)), None


class Clamp(torch.autograd.Function):
    """Changes its argument in place, and keeps its context in the newer way."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp_(-1, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(output)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return torch.where(ctx.saved_tensors[0].abs() < 1, gradient, 0.1 * gradient)


class Linear(torch.autograd.Function):
    """Reads attributes of its weight and adds to one of them, as fused gradient accumulation does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: nn.Parameter) -> Tensor:
        assert isinstance(weight, nn.Parameter) and weight.is_leaf
        ctx.save_for_backward(x, weight)
        return torch.matmul(x, weight.t()) * weight.factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        gradient = gradient * weight.factor
        summed = torch.einsum("blo,bli->oi", gradient, x.to(gradient.dtype))
        weight.main_grad.add_(summed)
        return torch.matmul(gradient, weight.to(gradient.dtype)), summed.to(weight.dtype)


class Again(torch.autograd.Function):
    """Computes its forward again in backward, with a graph and an engine run of its own."""

    @staticmethod
    def forward(ctx: Any, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        ctx.function, ctx.x = function, x
        return function(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        x = ctx.x.detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.function(x)
        torch.autograd.backward(y, gradient)
        return None, x.grad


class Customized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.scale = nn.Embedding(VOCABULARY, WIDTH), nn.Parameter(torch.rand(WIDTH))
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / math.sqrt(WIDTH))
        self.register_buffer("main_grad", torch.zeros(WIDTH, WIDTH))
        self.weight.main_grad, self.weight.factor = self.main_grad, 0.7
        self.inner, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, batch: Tensor) -> Tensor:
        x = F.dropout(self.embed(batch), 0.1)
        y, positive = Power.apply(x, self.scale, 3)
        y = Clamp.apply(y + x)
        y = Linear.apply(y, self.weight) + torch.where(positive, y, x)
        y = y + Again.apply(lambda z: F.gelu(self.inner(z)).float(), y)
        return self.head(y)


@program()
def custom_function() -> Built:
    """Functions with a backward of their own."""
    model, batches = Customized(), words()
    return model, fit(batches, batches, next_word), torch.optim.AdamW(model.parameters(), lr=1e-2)


class Composite(nn.Module):
    """One of many: values used several times, at different depths, so that the order of sums is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(WIDTH, HEADS, 48, dropout=0.1, batch_first=True)
        self.gain = nn.Parameter(torch.rand(WIDTH))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        x = F.dropout(self.embed(batch), 0.1, self.training)
        mask = torch.full((LENGTH, LENGTH), -math.inf).triu(1)
        attended, weights = self.attention(x, x, x, attn_mask=mask)
        x = self.encoder(x + attended, src_mask=mask, is_causal=True)
        x = self.reuse(x * self.gain) + x * self.gain.exp()
        x = self.index(x) + self.reduce(x)
        return self.head(F.normalize(x, dim=-1)), weights

    def reuse(self, x: Tensor) -> Tensor:
        """One value in many places."""
        left, right = x.chunk(2, -1)
        first, _, third = x.split([8, 16, 8], -1)
        scores = torch.einsum("bld,bmd->blm", left, right).softmax(-1)
        y = torch.cat([first, third, first * third, left[..., :8]], -1)
        y = torch.matmul(scores, x) + x * x + 0.3 * x * torch.sigmoid(x) - x.tanh() * y
        return torch.stack([y, x, y]).mean(0) + 2 / (1 + x.exp())

    def index(self, x: Tensor) -> Tensor:
        """Reading and writing of places, of one place twice."""
        y = torch.zeros_like(x)
        y[:, 1:] = x[:, :-1]
        y[x > 1] = 0.5
        y = y + x[:, [2, 0, 2] * (LENGTH // 3)] + x.roll(1, 1) + x.flip(-1)
        y.index_add_(1, torch.tensor([1, 1, 3]), x[:, :3])
        best = x.topk(3, dim=1)
        ordered, order = x.sort(dim=1)
        y = y.scatter_add(1, best.indices, best.values) + 0.1 * ordered.gather(1, order)
        return y + x.max(dim=1, keepdim=True).values + x[:, :0].sum()

    def reduce(self, x: Tensor) -> Tensor:
        """Sums, and values that are complex, double or whole."""
        y = x.cumsum(1) / torch.arange(1, LENGTH + 1).view(-1, 1)
        y = y + torch.fft.irfft(torch.fft.rfft(x.float()) * 0.5j)
        y = y + x.double().logsumexp(-1, keepdim=True).to(x.dtype) + x.std(1, keepdim=True)
        return y.masked_fill(torch.isnan(y), 0) + x.expand(3, -1, -1, -1).permute(1, 2, 3, 0).sum(-1)


@program()
def composite() -> Built:
    model, batches = Composite(), words()

    def step(model: nn.Module, number: int) -> Tensor:
        batch = batches[number % BATCHES]
        logits, weights = model(batch)
        flat = logits.reshape(-1, VOCABULARY)
        loss = F.cross_entropy(flat, batch.flatten(), ignore_index=5, label_smoothing=0.1)
        return loss + weights.square().mean() + 1e-3 * logits.logsumexp(-1).square().mean()

    return model, step, torch.optim.AdamW(model.parameters(), lr=1e-2, amsgrad=True)


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
        self.second = parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))
        self.third, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, x: Tensor) -> Tensor:
        def unpack(packed: tuple[torch.dtype, Tensor]) -> Tensor:
            return packed[1].to(packed[0])

        x = F.dropout(self.first(x).tanh(), 0.1)
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: (saved.dtype, saved.double()), unpack):
            y = F.gelu(self.second(x))
        y.register_hook(lambda gradient: gradient * 0.7)
        y.retain_grad()
        with torch.device("cpu"):
            y = y + torch.full((WIDTH,), 0.1)
        return self.head(self.third(y) + x)


@program()
def user_hooks() -> Built:
    """Hooks of the user's own, that change what goes through; weights that are computed."""

    def halve(value: Tensor) -> None:
        value.grad.mul_(0.5)

    model = Hooked()
    model.first.register_forward_pre_hook(
        lambda _, inputs, names: ((inputs[0] * 0.9,), names), with_kwargs=True
    )
    model.second.register_forward_hook(lambda _, __, output: output.clamp(-1, 1))
    model.third.register_full_backward_hook(lambda _, inputs, __: tuple(value * 1.1 for value in inputs))
    model.third.register_full_backward_pre_hook(lambda _, outputs: tuple(value * 0.9 for value in outputs))
    model.head.weight.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    model.head.bias.register_post_accumulate_grad_hook(halve)
    step = fit(reals(WIDTH), classes(5), F.cross_entropy)
    return model, step, torch.optim.SGD(model.parameters(), lr=0.1)


@program()
def penalty() -> Built:
    """A loss of gradients: the backward pass has a graph, and two passes go through one graph."""
    model = nn.Sequential(
        nn.Linear(WIDTH, 48), nn.Tanh(), nn.Dropout(0.1), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 5)
    )
    inputs, targets = reals(WIDTH), classes(5)

    def step(model: nn.Module, number: int) -> Tensor:
        x = inputs[number % BATCHES].clone().requires_grad_()
        loss = F.cross_entropy(model(x), targets[number % BATCHES])
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        return loss + slope.square().sum()

    return model, step, torch.optim.Adam(model.parameters(), lr=1e-2)


@program()
def functorch() -> Built:
    """Gradients of each sample, by transforms whose tensors have no values of their own."""
    model = nn.Sequential(nn.Linear(WIDTH, 48), nn.Tanh(), nn.Linear(48, 5))
    inputs, targets = reals(WIDTH), classes(5)

    def step(model: nn.Module, number: int) -> Tensor:
        def loss(parameters: dict[str, Tensor], x: Tensor, target: Tensor) -> Tensor:
            logits = torch.func.functional_call(model, parameters, (x,))
            return F.cross_entropy(F.dropout(logits, 0.1), target)

        x, target = inputs[number % BATCHES], targets[number % BATCHES]
        each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0), randomness="different")
        gradients = each(dict(model.named_parameters()), x, target)
        return F.cross_entropy(model(x), target) + sum(value.square().sum() for value in gradients.values())

    return model, step, torch.optim.SGD(model.parameters(), lr=1e-3)


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH, sparse=True)
        self.bag = nn.EmbeddingBag(VOCABULARY, WIDTH, sparse=True, mode="sum")
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, batch: Tensor) -> Tensor:
        return self.head(F.dropout(self.embed(batch).mean(1), 0.1) + self.bag(batch))


@program()
def sparse() -> Built:
    """Gradients that are sparse."""
    model = Sparse()
    return model, fit(words(), classes(5), F.cross_entropy), torch.optim.SGD(model.parameters(), lr=0.01)
