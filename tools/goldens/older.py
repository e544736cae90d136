"""Families from before Llama: how their weights are drawn, and mistakes with them.

Their modules have other names, and LayerNorm, biases and learned positions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from families import EMBEDDING_STD, Case
from mutation import FAINT_CHANGE, Edit, Mutation

# Standard deviations in units of 1/sqrt(inputs), by the end of a module's name. FFNs with GELU
# give much, so that its approximation is told from it.
_GAINS = {
    "q_proj": 1.4, "k_proj": 1.4, "v_proj": 1.0, "out_proj": 0.04, "fc1": 1.0, "fc2": 0.06,
    "query_key_value": 1.4, "dense": 0.04, "dense_h_to_4h": 1.0, "dense_4h_to_h": 0.2,
    "attn.c_attn": 1.4, "attn.c_proj": 0.04, "mlp.c_fc": 1.0, "mlp.c_proj": 0.2,
}
_BIASES_OF_OUTPUTS = ("out_proj", "fc2", "c_proj")
_EMBEDDINGS = ("embed_tokens", "embed_positions", "word_embeddings", "wte", "wpe")
_LAST_NORMS = ("model.decoder.final_layer_norm", "transformer.ln_f")


def _is_norm(module: str) -> bool:
    last = module.rsplit(".", 1)[-1]
    return "norm" in last or last.startswith("ln_")


def draw(case: Case, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Values of a parameter, by its HF name."""
    module, kind = name.rsplit(".", 1)
    if _is_norm(module) and kind == "weight":
        # Tied embeddings are too small to make peaked logits by themselves.
        peak = 3.0 / (EMBEDDING_STD * math.sqrt(case.hidden_size))
        return (peak if module in _LAST_NORMS else 1.0) * rng.uniform(0.5, 1.5, shape)
    if _is_norm(module):
        std = 0.2
    elif kind == "bias":
        std = 0.01 if module.endswith(_BIASES_OF_OUTPUTS) else 0.4
    elif module.endswith(_EMBEDDINGS):
        std = EMBEDDING_STD
    else:
        gain = max((len(end), gain) for end, gain in _GAINS.items() if module.endswith(end))[1]
        # Conv1D of GPT-2 has its inputs first.
        inputs = shape[0] if case.family == "gpt2" else shape[-1]
        std = gain / math.sqrt(inputs)
    half_width = std * math.sqrt(3.0)
    return rng.uniform(-half_width, half_width, shape)


def _fill(pattern: str, value: float) -> Edit:
    @torch.no_grad()
    def run(model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            if re.sub(r"\.\d+\.", ".N.", name) == pattern:
                parameter.fill_(value)

    return run


def mutations(case: Case, model: nn.Module) -> Iterator[Mutation]:
    """One for every vector that could be left out, and some of positions and heads."""
    names = {re.sub(r"\.\d+\.", ".N.", name) for name, _ in model.named_parameters()}
    for name in sorted(names):
        module, kind = name.rsplit(".", 1)
        # Without rotation a bias of keys adds the same to all scores of a query.
        if name.endswith("k_proj.bias"):
            continue
        if _is_norm(module) or kind == "bias" or module.endswith(("embed_positions", "wpe")):
            is_gain = _is_norm(module) and kind == "weight"
            yield Mutation(f"{name} ignored", edit=_fill(name, 1.0 if is_gain else 0.0))
    if case.family != "opt":  # which counts positions by its mask
        yield Mutation("no causal mask", unmasked=True)

    @torch.no_grad()
    def shift(model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            if name.endswith(("embed_positions.weight", "wpe.weight")):
                parameter.copy_(parameter.roll(-1, 0))

    if case.family in ("gpt2", "opt"):
        yield Mutation("positions off by one", edit=shift)
    for name, change in case.mistakes.items():
        yield Mutation(name, change)
    for name, change in case.faint_mistakes.items():
        yield Mutation(name, change, least=FAINT_CHANGE)
