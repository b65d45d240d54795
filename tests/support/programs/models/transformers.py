"""Models of the package transformers, small and seeded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from support.programs.training import (
    BATCHES,
    BOTH,
    HEADS,
    VOCABULARY,
    WIDTH,
    Built,
    StepFunction,
    classes,
    padded,
    program,
    reals,
    seed,
    words,
)


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
