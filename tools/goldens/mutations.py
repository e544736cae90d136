"""Wrong models: every mistake an engine may make must change the logits.

A golden test is worth only what it can tell apart. Each mutation here is one
mistake (a forgotten key, a wrong order of heads, a missing mask), made on the
HF side; make_goldens.py fails where a mutation moves the logits too little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from families import CONTEXT_LENGTH, RMS_EPS, VOCAB_SIZE, Case, patch_activation
from gguf_out import permute_rope_rows

# max |delta| / max |reference| that a mutation must exceed.
MIN_RELATIVE_CHANGE = 1e-3

Edit = Callable[[nn.Module], None]


@dataclass(frozen=True)
class Mutation:
    """Changes to the HF config, an edit of the built model, or both."""

    name: str
    config: dict[str, Any] = field(default_factory=dict)
    edit: Edit | None = None
    unmasked: bool = False


def _each_layer(edit: Callable[[nn.Module], None]) -> Edit:
    @torch.no_grad()
    def run(model: nn.Module) -> None:
        for layer in model.model.layers:
            edit(layer)

    return run


def _reorder_rows(linear: nn.Linear, order: torch.Tensor) -> None:
    linear.weight.copy_(linear.weight[order])
    if linear.bias is not None:
        linear.bias.copy_(linear.bias[order])


def _head_rows(heads: list[int], head_dim: int) -> torch.Tensor:
    return torch.cat([torch.arange(h * head_dim, (h + 1) * head_dim) for h in heads])


def _rope(case: Case, **changes: Any) -> dict[str, Any]:
    """A config change of RoPE parameters; None drops the field."""
    values = {"rope_type": "default"} | case.rope_scaling | {"rope_theta": case.rope_theta}
    values |= changes
    return {"rope_parameters": {k: v for k, v in values.items() if v is not None}}


def _common(case: Case) -> Iterator[Mutation]:
    yield Mutation("rope base x 1.5", _rope(case, rope_theta=case.rope_theta * 1.5))
    yield Mutation("eps x 100", {"rms_norm_eps": RMS_EPS * 100})
    yield Mutation("eps 1e-6", {"rms_norm_eps": 1e-6})
    yield Mutation("no causal mask", unmasked=True)

    def norm_to_one(module: str) -> Edit:
        return _each_layer(lambda layer: layer.get_submodule(module).weight.fill_(1.0))

    yield Mutation("attn_norm weight ignored", edit=norm_to_one("input_layernorm"))
    yield Mutation("ffn_norm weight ignored", edit=norm_to_one("post_attention_layernorm"))
    if case.has_qk_norm:
        yield Mutation("attn_q_norm weight ignored", edit=norm_to_one("self_attn.q_norm"))
        yield Mutation("attn_k_norm weight ignored", edit=norm_to_one("self_attn.k_norm"))

        def other_eps(layer: nn.Module) -> None:
            layer.self_attn.q_norm.variance_epsilon = 1e-6
            layer.self_attn.k_norm.variance_epsilon = 1e-6

        yield Mutation("q/k norms with eps 1e-6", edit=_each_layer(other_eps))

        def no_norm(layer: nn.Module) -> None:
            layer.self_attn.q_norm = nn.Identity()
            layer.self_attn.k_norm = nn.Identity()

        yield Mutation("q/k norms missing", edit=_each_layer(no_norm))


def _heads(case: Case) -> Iterator[Mutation]:
    def other_pairs(layer: nn.Module) -> None:
        for linear, heads in ((layer.self_attn.q_proj, case.num_heads),
                              (layer.self_attn.k_proj, case.num_kv_heads)):
            rows = torch.arange(heads * case.head_dim).numpy()
            _reorder_rows(linear, torch.from_numpy(permute_rope_rows(rows, heads)))
        for name in ("q_norm", "k_norm"):
            if hasattr(layer.self_attn, name):
                weight = layer.self_attn.get_submodule(name).weight
                order = permute_rope_rows(torch.arange(case.head_dim).numpy(), 1)
                weight.copy_(weight[torch.from_numpy(order)])

    yield Mutation("other RoPE pairs", edit=_each_layer(other_pairs))

    def swap_q(layer: nn.Module) -> None:
        heads = [1, 0, *range(2, case.num_heads)]
        _reorder_rows(layer.self_attn.q_proj, _head_rows(heads, case.head_dim))

    yield Mutation("q heads 0 and 1 swapped", edit=_each_layer(swap_q))

    def swap_kv(layer: nn.Module) -> None:
        order = _head_rows([1, 0, *range(2, case.num_kv_heads)], case.head_dim)
        _reorder_rows(layer.self_attn.k_proj, order)
        _reorder_rows(layer.self_attn.v_proj, order)

    yield Mutation("kv heads 0 and 1 swapped", edit=_each_layer(swap_kv))
    if case.num_kv_heads != case.num_heads:
        group = case.num_heads // case.num_kv_heads
        # Place p attends kv head p / group; put there the head that would
        # attend it if kv heads were dealt round-robin.
        heads = [i * case.num_kv_heads + kv
                 for kv in range(case.num_kv_heads) for i in range(group)]
        order = _head_rows(heads, case.head_dim)

        def tile(layer: nn.Module) -> None:
            _reorder_rows(layer.self_attn.q_proj, order)
            o_proj = layer.self_attn.o_proj
            o_proj.weight.copy_(o_proj.weight[:, order])

        yield Mutation("kv head = head mod kv heads", edit=_each_layer(tile))
    if case.head_dim * case.num_heads != case.hidden_size:
        def other_scale(layer: nn.Module) -> None:
            layer.self_attn.scaling = (case.hidden_size / case.num_heads) ** -0.5

        yield Mutation("scores scaled by hidden/heads", edit=_each_layer(other_scale))


def _biases(case: Case) -> Iterator[Mutation]:
    def without(name: str) -> Edit:
        return _each_layer(lambda layer: getattr(layer.self_attn, name).bias.zero_())

    if case.has_qkv_bias:
        for name in ("q_proj", "k_proj", "v_proj"):
            yield Mutation(f"{name} bias missing", edit=without(name))
    if case.attention_bias:
        yield Mutation("o_proj bias missing", edit=without("o_proj"))


def _positions(case: Case) -> Iterator[Mutation]:
    kind = case.rope_scaling.get("rope_type")
    if kind:
        yield Mutation("rope scaling missing",
                       {"rope_parameters": {"rope_type": "default",
                                            "rope_theta": case.rope_theta}})
        yield Mutation("rope scaling factor x 1.5",
                       _rope(case, factor=case.rope_scaling["factor"] * 1.5))
    if kind == "yarn":
        yield Mutation("yarn betas 32 and 1", _rope(case, beta_fast=32.0, beta_slow=1.0))
        yield Mutation("yarn attention factor 1", _rope(case, attention_factor=1.0))
        yield Mutation("linear instead of yarn",
                       {"rope_parameters": {"rope_type": "linear",
                                            "rope_theta": case.rope_theta,
                                            "factor": case.rope_scaling["factor"]}})
        yield Mutation("original context = context length",
                       _rope(case, original_max_position_embeddings=CONTEXT_LENGTH))
        if "attention_factor" in case.rope_scaling:
            yield Mutation("attn_factor key ignored", _rope(case, attention_factor=None))
    if kind == "llama3":
        yield Mutation("linear instead of llama3",
                       {"rope_parameters": {"rope_type": "linear",
                                            "rope_theta": case.rope_theta,
                                            "factor": case.rope_scaling["factor"]}})
    if case.sliding_window is not None:
        yield Mutation("no sliding window", {"sliding_window": None})
        for window in (case.sliding_window - 1, case.sliding_window + 1):
            yield Mutation(f"sliding window {window}", {"sliding_window": window})


def _activations(case: Case) -> Iterator[Mutation]:
    if case.activation != "silu":
        def to_silu(layer: nn.Module) -> None:
            layer.mlp.act_fn = nn.SiLU()
            if "forward" in vars(layer.mlp):  # drelu's patch
                del layer.mlp.forward

        yield Mutation("silu instead", edit=_each_layer(to_silu))
    if case.activation in ("fatrelu", "drelu"):
        def to_relu(layer: nn.Module) -> None:
            layer.mlp.act_fn = nn.ReLU()
            vars(layer.mlp).pop("forward", None)

        yield Mutation("relu instead", edit=_each_layer(to_relu))
    if case.activation == "fatrelu":
        yield Mutation("threshold x 1.5",
                       edit=lambda m: patch_activation(m, "fatrelu", case.threshold * 1.5))
        yield Mutation("threshold 0.01",
                       edit=lambda m: patch_activation(m, "fatrelu", 0.01))
    if case.activation == "relu":
        yield Mutation("drelu instead", edit=lambda m: patch_activation(m, "drelu", 0.0))


def _experts(case: Case) -> Iterator[Mutation]:
    if not case.num_experts:
        return
    for top_k in (case.num_experts_per_token - 1, case.num_experts_per_token + 1):
        yield Mutation(f"top {top_k} experts", {"num_experts_per_tok": top_k})

    def swap(layer: nn.Module) -> None:
        order = torch.tensor([1, 0, *range(2, case.num_experts)])
        layer.mlp.gate.weight.copy_(layer.mlp.gate.weight[order])

    yield Mutation("experts 0 and 1 swapped", edit=_each_layer(swap))

    def softmax_only(layer: nn.Module) -> None:
        # Undoes the normalization over the chosen: weights of the full softmax.
        def hook(_: nn.Module, __: Any, out: tuple) -> tuple:
            logits, _, chosen = out
            return logits, logits.softmax(-1).gather(-1, chosen), chosen

        layer.mlp.gate.register_forward_hook(hook)

    yield Mutation("expert weights not normalized", edit=_each_layer(softmax_only))


def _head(case: Case) -> Iterator[Mutation]:
    @torch.no_grad()
    def flat_norm(model: nn.Module) -> None:
        model.model.norm.weight.fill_(1.0)

    yield Mutation("output_norm weight ignored", edit=flat_norm)

    @torch.no_grad()
    def roll(model: nn.Module) -> None:
        weight = model.get_output_embeddings().weight
        model.lm_head.weight = nn.Parameter(weight[torch.arange(VOCAB_SIZE) - 1])

    yield Mutation("output rows off by one", edit=roll)


def mutations_for(case: Case) -> Iterator[Mutation]:
    """All mistakes that make sense for the case."""
    for group in (_common, _heads, _biases, _positions, _activations, _experts, _head):
        yield from group(case)
