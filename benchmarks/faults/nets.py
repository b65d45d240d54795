"""Tiny models with random weights, the same at every call, and their batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from faults.cases import SEED

WORDS = 128


def words(rows: int = 2, length: int = 24) -> Tensor:
    """Return a batch of tokens; 0 is left for padding."""
    return torch.randint(1, WORDS, (rows, length), generator=torch.Generator().manual_seed(SEED + 1))


def reals(*shape: int) -> Tensor:
    """Return a batch of normally distributed numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(SEED + 2))


def pretrained(family: str, config: str, model: str, **settings: Any) -> Any:
    """Return a model of transformers, in evaluation mode, with the random weights of its configuration."""
    import transformers

    settings = {"vocab_size": WORDS, "use_cache": False, "attn_implementation": "eager", **settings}
    torch.manual_seed(SEED)
    made = getattr(transformers, f"{family}{model}")(getattr(transformers, f"{family}{config}")(**settings))
    return made.eval()


DECODER: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512,
}  # fmt: skip


def llama(**settings: Any) -> Any:
    """Return a Llama with heads of size 16."""
    return pretrained("Llama", "Config", "ForCausalLM", **{**DECODER, **settings})


def qwen2(**settings: Any) -> Any:
    """Return a Qwen2 whose projections have random biases."""
    model = pretrained("Qwen2", "Config", "ForCausalLM", **{**DECODER, **settings})
    generator = torch.Generator().manual_seed(SEED + 3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, 0.05, generator=generator)
    return model


def gemma2(**settings: Any) -> Any:
    """Return a Gemma 2, which caps its logits, with heads of size 16."""
    sizes = {**DECODER, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8}
    return pretrained("Gemma2", "Config", "ForCausalLM", **{**sizes, **settings})


def gemma3(**settings: Any) -> Any:
    """Return a Gemma 3, whose embedding layer scales by the root of the hidden size, 96."""
    sizes = {**DECODER, "hidden_size": 96, "head_dim": 24, "query_pre_attn_scalar": 24, "sliding_window": 8}
    return pretrained("Gemma3", "TextConfig", "ForCausalLM", **{**sizes, **settings})


def gpt2(**settings: Any) -> Any:
    """Return a GPT-2 with 4 heads of size 16."""
    sizes = {"n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}
    return pretrained("GPT2", "Config", "LMHeadModel", **{**sizes, **settings})


def bert(**settings: Any) -> Any:
    """Return a BERT encoder."""
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return pretrained("Bert", "Config", "Model", **{**sizes, "max_position_embeddings": 64, **settings})


def spread_norms(model: nn.Module) -> None:
    """Give the weights of all norms random values around 1, as after training."""
    generator = torch.Generator().manual_seed(SEED + 4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name.lower() and name.endswith("weight"):
                parameter.copy_(1 + 0.3 * torch.randn(parameter.shape, generator=generator))


def convolutional(eps: float = 1e-5) -> nn.Sequential:
    """Return a network of two convolutions with batch norms that were trained, in evaluation mode."""
    torch.manual_seed(SEED)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16, eps=eps), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    for layer in net:
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.1)  # type: ignore[union-attr]
            layer.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    return net.eval()
