"""Controls: two programs that differ by nothing or by rounding, so that a comparison must raise nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults import nets
from faults.cases import Cases, Forward, Training
from faults.forward import padded, positions
from faults.training import adamw, plain_step, trained

CONTROLS = Cases()
control = CONTROLS.case


@control("same-run", "The same forward pass runs twice.")
def same_run(other: bool) -> Forward:
    return Forward(nets.llama(), {"input_ids": nets.words()})


@control("same-training", "The same training steps run twice.")
def same_training(other: bool) -> Training:
    model = trained()
    return Training(model, plain_step(model, adamw(model)), 3)


@control("split-matmul", "A projection is the sum of the products of two halves.")
def split_matmul(other: bool) -> Forward:
    model = nets.llama()
    if other:
        down = model.model.layers[1].mlp.down_proj
        down.forward = lambda x: x[..., :64] @ down.weight[:, :64].T + x[..., 64:] @ down.weight[:, 64:].T
    return Forward(model, {"input_ids": nets.words()})


@control("transposed-matmul", "A projection is computed from transposes, and added up from the end.")
def transposed_matmul(other: bool) -> Forward:
    model = nets.llama()
    if other:
        output = model.model.layers[1].self_attn.o_proj
        output.forward = lambda x: (output.weight.flip(1) @ x.flip(-1).transpose(-1, -2)).transpose(-1, -2)
    return Forward(model, {"input_ids": nets.words()})


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Limit the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@control("threads", "A model is trained on two threads instead of one, which add up gradients in parts.")
def thread_count(other: bool) -> Training:
    model = nets.gpt2(n_positions=128)
    step = plain_step(model, torch.optim.SGD(model.parameters(), lr=0.1, foreach=False), nets.words(4, 64))
    return Training(model, step, context=lambda: threads(2 if other else 1))


@control("fused-attention", "Attention is a fused operator instead of separate ones.")
def fused_attention(other: bool) -> Forward:
    model = nets.llama(attn_implementation="sdpa" if other else "eager")
    return Forward(model, {"input_ids": nets.words()})


@control("channels-last", "A convolutional network runs in the memory format channels_last.")
def channels_last(other: bool) -> Forward:
    net, images = nets.convolutional(), nets.reals(4, 3, 12, 12)
    if other:
        net, images = (each.to(memory_format=torch.channels_last) for each in (net, images))  # type: ignore
    return Forward(net, {"input": images})


@control("bfloat16", "A model in bfloat16 runs on kernels that sum in another order.")
def other_kernels(other: bool) -> Forward:
    model = nets.llama(hidden_size=256, intermediate_size=512, num_attention_heads=8).bfloat16()
    return Forward(
        model,
        {"input_ids": nets.words(2, 64)},
        context=lambda: torch.backends.mkldnn.flags(enabled=not other),
    )


@control("fused-optimizer", "AdamW is fused instead of a loop over the parameters.")
def fused_optimizer(other: bool) -> Training:
    model = trained()
    optimizer = adamw(model, fused=True) if other else adamw(model)
    return Training(model, plain_step(model, optimizer), 3)


class Pooled(nn.Module):
    """A classifier of the mean of a sequence, which it may add up from the end."""

    def __init__(self, backwards: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.backwards = nn.Linear(64, 64), nn.Linear(64, 10), backwards

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.first(x))
        return cast(Tensor, self.second((hidden.flip(1) if self.backwards else hidden).sum(1) / x.shape[1]))


@control("order-of-sums", "A sequence is added up from its end.")
def order_of_sums(other: bool) -> Forward:
    return Forward(Pooled(other), {"x": nets.reals(4, 200, 64)})


class Attention(nn.Module):
    """An attention layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return cast(Tensor, self.out(mixed.transpose(1, 2).flatten(2)))


@control("mask-of-zeros", "An attention mask that hides nothing is given instead of none.")
def mask_of_zeros(other: bool) -> Forward:
    inputs: dict[str, Any] = {"x": nets.reals(2, 24, 64)}
    return Forward(Attention(), inputs | {"mask": torch.zeros(2, 1, 24, 24) if other else None})


@control("padding-with-rope", "Positions count the padding on the left, which rotary embeddings do not feel.")
def padding_with_rope(other: bool) -> Forward:
    batch = padded()
    if not other:
        batch["position_ids"] = positions(batch["attention_mask"])
    return Forward(nets.llama(), batch, backward=False)  # the gradients of hidden positions do differ


@control("batch-in-halves", "A batch is computed in two halves, and the results are joined.")
def batch_in_halves(other: bool) -> Forward:
    model = nets.llama()

    def joined(input_ids: Tensor) -> Tensor:
        if not other:
            return cast(Tensor, model(input_ids=input_ids).logits)
        return torch.cat([model(input_ids=half).logits for half in input_ids.chunk(2)])

    return Forward(model, {"input_ids": nets.words(4)}, call=joined)


def layer_norm(norm: nn.LayerNorm, hidden: Tensor) -> Tensor:
    """Return a layer norm by its formula."""
    centred = hidden - hidden.mean(-1, keepdim=True)
    variance = centred.pow(2).mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias


@control("layer-norm", "A layer norm is computed by its formula instead of by one operator.")
def layer_norm_by_formula(other: bool) -> Forward:
    model = nets.bert()
    if other:
        norm = model.encoder.layer[1].attention.output.LayerNorm
        norm.forward = lambda hidden: layer_norm(norm, hidden)
    return Forward(model, {"input_ids": nets.words()})


@control("checkpointing", "Activations are computed again in the backward pass instead of kept.")
def checkpointing(other: bool) -> Training:
    model = trained()
    if other:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return Training(model, plain_step(model, adamw(model)))
