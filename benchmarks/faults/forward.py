"""Known faults of the forward pass, each put into a tiny model."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from faults import nets
from faults.cases import Cases, Forward, Line

FORWARD = Cases()
known_fault = FORWARD.case


@known_fault(
    "F01",
    "Attention scores are divided by the head size instead of its root.",
    Line(op="__mul__|Torch.mul", place=r"layers\.1\.self_attn"),
)
def attention_scale(wrong: bool) -> Forward:
    model = nets.llama()
    if wrong:
        model.model.layers[1].self_attn.scaling = 1 / 16
    return Forward(model, {"input_ids": nets.words()})


def round_late(norm: nn.Module, hidden: Tensor) -> Tensor:
    """Return an RMS norm that is multiplied by its weight before the result is rounded to bfloat16."""
    values = hidden.float()
    values = values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)  # type: ignore[operator]
    return (norm.weight.float() * values).to(hidden.dtype)  # type: ignore[operator]


@known_fault(
    "F03",
    "An RMS norm is multiplied by its weight before, not after, it is rounded to bfloat16.",
    Line(place=r"layers\.1\.post_attention_layernorm"),
)
def late_rounding(wrong: bool) -> Forward:
    model = nets.llama()
    nets.spread_norms(model)
    model.bfloat16()
    if wrong:
        norm = model.model.layers[1].post_attention_layernorm
        norm.forward = lambda hidden: round_late(norm, hidden)
    return Forward(model, {"input_ids": nets.words()})


@known_fault(
    "F05",
    "GELU is computed exactly where the model was trained with the approximation by tanh.",
    Line(place=r"h\.1\.mlp\.act"),
)
def exact_gelu(wrong: bool) -> Forward:
    model = nets.gpt2()
    if wrong:
        model.transformer.h[1].mlp.act = nn.GELU()
    return Forward(model, {"input_ids": nets.words()})


@known_fault(
    "F07",
    "The frequencies of the rotary embedding are rounded to bfloat16.",
    Line(place=r"model\.rotary_emb"),
)
def rounded_frequencies(wrong: bool) -> Forward:
    model = nets.llama()
    if wrong:
        frequencies = model.model.rotary_emb.inv_freq
        frequencies.copy_(frequencies.bfloat16().float())
    return Forward(model, {"input_ids": nets.words(1, 400)})


@known_fault(
    "F09",
    "The fused projection of query, key and value is laid out head by head.",
    Line(place=r"h\.1\.attn\.c_attn"),
)
def fused_layout(wrong: bool) -> Forward:
    model = nets.gpt2()
    if wrong:
        projection = model.transformer.h[1].attn.c_attn
        order = torch.arange(192).view(3, 4, 16).permute(1, 0, 2).reshape(-1)
        with torch.no_grad():
            projection.weight.copy_(projection.weight[:, order].clone())
            projection.bias.copy_(projection.bias[order].clone())
    return Forward(model, {"input_ids": nets.words()})


@known_fault(
    "F11",
    "The scale of the embeddings, the root of the hidden size, is rounded to bfloat16.",
    Line(place=r"model\.embed_tokens"),
)
def rounded_embedding_scale(wrong: bool) -> Forward:
    model = nets.gemma3()
    if wrong:
        scale = model.model.embed_tokens.embed_scale
        scale.copy_(scale.bfloat16().float())
    return Forward(model, {"input_ids": nets.words()})


@known_fault(
    "F13",
    "Attention scores are scaled by the hidden size per head of another model.",
    Line(op="__mul__|Torch.mul", place=r"layers\.1\.self_attn"),
)
def query_scalar(wrong: bool) -> Forward:
    model = nets.gemma2()
    if wrong:
        model.model.layers[1].self_attn.scaling = 24**-0.5
    return Forward(model, {"input_ids": nets.words()})


def padded() -> dict[str, Tensor]:
    """Return a batch that is padded on the left, with its mask."""
    batch = nets.words(3, 16)
    mask = torch.ones_like(batch)
    for row, count in enumerate((0, 3, 7)):
        batch[row, :count] = 0
        mask[row, :count] = 0
    return {"input_ids": batch, "attention_mask": mask}


def positions(mask: Tensor) -> Tensor:
    """Return the positions of a padded batch: the first token that is no padding is at 0."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


@known_fault(
    "F15",
    "The positions of a batch that is padded on the left count the padding.",
    Line(place=r"transformer\.wpe"),
    Line(text=r"transformer\.wpe"),
    Line(row="position_ids"),
)
def padded_positions(wrong: bool) -> Forward:
    batch = padded()
    if not wrong:
        batch["position_ids"] = positions(batch["attention_mask"])
    return Forward(nets.gpt2(), batch)


@known_fault(
    "F17",
    "Rows that a mask hides entirely are masked by minus infinity, and softmax gives NaN.",
    Line(op="softmax", place=r"layers\.0\.self_attn"),
    Line(row="attention_mask"),
)
def infinite_mask(wrong: bool) -> Forward:
    length = 16
    least = -torch.inf if wrong else torch.finfo(torch.float32).min
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    hidden[:3] = True
    mask = torch.zeros(2, 1, length, length).masked_fill(hidden, least)
    return Forward(nets.llama(), {"input_ids": nets.words(2, length), "attention_mask": mask})


def rounded_softmax_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float, **_: Any
) -> tuple[Tensor, Tensor]:
    """Return the attention of a Llama whose softmax is not computed in float32."""
    from transformers.models.llama.modeling_llama import repeat_kv

    key, value = repeat_kv(key, module.num_key_value_groups), repeat_kv(value, module.num_key_value_groups)
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    scores = scores + mask[:, :, :, : key.shape[-2]]
    weights = nn.functional.softmax(scores, dim=-1)
    weights = nn.functional.dropout(weights, p=0.0, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


@known_fault(
    "F19",
    "The softmax of the attention is computed in bfloat16 instead of float32.",
    Line(op="softmax", place=r"layers\.0\.self_attn"),
)
def rounded_softmax(wrong: bool) -> Forward:
    from transformers.models.llama import modeling_llama

    model = nets.llama(initializer_range=0.1).bfloat16()
    name = "eager_attention_forward"
    attention = rounded_softmax_attention if wrong else getattr(modeling_llama, name)
    return Forward(
        model, {"input_ids": nets.words()}, context=lambda: mock.patch.object(modeling_llama, name, attention)
    )


@known_fault(
    "F21",
    "The bias of the key projection is dropped.",
    Line(place=r"layers\.1\.self_attn\.k_proj"),
)
def dropped_bias(wrong: bool) -> Forward:
    model = nets.qwen2()
    if wrong:
        model.model.layers[1].self_attn.k_proj.bias = None
    return Forward(model, {"input_ids": nets.words()})


@known_fault(
    "F23",
    "The dropout of the attention weights is active in evaluation.",
    Line(op="dropout", place=r"layers\.1\.self_attn"),
)
def active_dropout(wrong: bool) -> Forward:
    model = nets.llama()
    if wrong:
        attention = model.model.layers[1].self_attn
        attention.attention_dropout, attention.training = 0.2, True
    return Forward(model, {"input_ids": nets.words()})


@known_fault(
    "F25",
    "A batch norm adds 1e-3 to the variance instead of 1e-5.",
    Line(op="batch_norm"),
    Line(place=r"(^|[. ])1(\.BatchNorm|$)"),
)
def batch_norm_eps(wrong: bool) -> Forward:
    return Forward(nets.convolutional(1e-3 if wrong else 1e-5), {"input": nets.reals(4, 3, 12, 12)})


def unbiased_norm(norm: nn.LayerNorm, hidden: Tensor) -> Tensor:
    """Return a layer norm that divides the variance by one less than the number of values."""
    centred = hidden - hidden.mean(-1, keepdim=True)
    variance = hidden.var(-1, unbiased=True, keepdim=True)
    return centred / torch.sqrt(variance + norm.eps) * norm.weight + norm.bias


@known_fault(
    "F27",
    "A layer norm divides the variance by one less than the number of values.",
    Line(place=r"layer\.1\.attention\.output\.LayerNorm"),
)
def unbiased_variance(wrong: bool) -> Forward:
    model = nets.bert()
    if wrong:
        norm = model.encoder.layer[1].attention.output.LayerNorm
        norm.forward = lambda hidden: unbiased_norm(norm, hidden)
    return Forward(model, {"input_ids": nets.words()})
