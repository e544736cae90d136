"""Wrong models: every mistake an engine may make must change the logits.

A golden test is worth only what it can tell apart. Each mutation here is one
mistake (a forgotten key, a wrong order of heads, a missing mask), made on the
HF side; make_goldens.py fails where a mutation moves the logits too little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from families import CONTEXT_LENGTH, RMS_EPS, VOCAB_SIZE, Case
from gguf_out import permute_rope_rows
import older
from models import build_model, patch_activation
from mutation import Edit, Mutation
from reference import router_of

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
    values = case.config.get("rope_parameters", values)
    if "full_attention" in values:
        return {"rope_parameters": {kind: rope | changes for kind, rope in values.items()}}
    values = values | changes
    return {"rope_parameters": {k: v for k, v in values.items() if v is not None}}


def _common(case: Case) -> Iterator[Mutation]:
    yield Mutation("rope base x 1.5", _rope(case, rope_theta=case.rope_theta * 1.5))
    yield Mutation("eps x 100", {"rms_norm_eps": RMS_EPS * 100})
    yield Mutation("eps 1e-6", {"rms_norm_eps": 1e-6})
    yield Mutation("no causal mask", unmasked=True)

    def norm_to_one(module: str) -> Edit:
        return _each_layer(
            lambda layer: layer.get_submodule(module).weight.fill_(1.0 - case.norm_offset))

    for module, name in _norms(case):
        yield Mutation(f"{name} weight ignored", edit=norm_to_one(module))
    if case.has_qk_norm:
        def other_eps(layer: nn.Module) -> None:
            for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
                setattr(norm, "eps" if hasattr(norm, "eps") else "variance_epsilon", 1e-6)

        yield Mutation("q/k norms with eps 1e-6", edit=_each_layer(other_eps))

        def no_norm(layer: nn.Module) -> None:
            layer.self_attn.q_norm = nn.Identity()
            layer.self_attn.k_norm = nn.Identity()

        yield Mutation("q/k norms missing", edit=_each_layer(no_norm))


def _norms(case: Case) -> Iterator[tuple[str, str]]:
    """The norms of a layer as modules of HF, and what mutations call them."""
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
             "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
    for module, _ in build_model(case).model.layers[0].named_modules():
        if module.endswith("norm"):
            yield module, module if case.is_converted else names[module]


def _pairs_of_heads(case: Case, num_heads: int) -> torch.Tensor:
    """Rows of q or k in an order in which RoPE takes other rows for a pair."""
    rows = torch.arange(num_heads * case.head_dim).reshape(num_heads, case.head_dim)
    dims = case.rope_dims or case.head_dim
    rotated = permute_rope_rows(rows[:, :dims].reshape(-1).numpy(), num_heads)
    rows[:, :dims] = torch.from_numpy(rotated.reshape(num_heads, dims))
    return rows.reshape(-1)


def _reorder_qkv(case: Case, attention: nn.Module, **orders: torch.Tensor) -> None:
    """Reorders rows of q, k or v, whether they are three matrices or one."""
    heads = {"q": case.num_heads, "k": case.num_kv_heads, "v": case.num_kv_heads}
    if not hasattr(attention, "qkv_proj"):
        for name, order in orders.items():
            _reorder_rows(getattr(attention, f"{name}_proj"), order)
        return
    parts, first = [], 0
    for name, count in heads.items():
        rows = count * case.head_dim
        parts.append(first + orders.get(name, torch.arange(rows)))
        first += rows
    _reorder_rows(attention.qkv_proj, torch.cat(parts))


def _heads(case: Case) -> Iterator[Mutation]:
    def other_pairs(layer: nn.Module) -> None:
        orders = {"q": _pairs_of_heads(case, case.num_heads),
                  "k": _pairs_of_heads(case, case.num_kv_heads)}
        _reorder_qkv(case, layer.self_attn, **orders)
        if case.has_qk_norm:
            for name, order in orders.items():
                weight = layer.self_attn.get_submodule(f"{name}_norm").weight
                weight.copy_(weight[order[: len(weight)]])

    yield Mutation("other RoPE pairs", edit=_each_layer(other_pairs))

    def swap_q(layer: nn.Module) -> None:
        heads = [1, 0, *range(2, case.num_heads)]
        _reorder_qkv(case, layer.self_attn, q=_head_rows(heads, case.head_dim))

    yield Mutation("q heads 0 and 1 swapped", edit=_each_layer(swap_q))

    def swap_kv(layer: nn.Module) -> None:
        order = _head_rows([1, 0, *range(2, case.num_kv_heads)], case.head_dim)
        _reorder_qkv(case, layer.self_attn, k=order, v=order)

    yield Mutation("kv heads 0 and 1 swapped", edit=_each_layer(swap_kv))
    if case.num_kv_heads != case.num_heads:
        group = case.num_heads // case.num_kv_heads
        # Place p attends kv head p / group; put there the head that would
        # attend it if kv heads were dealt round-robin.
        heads = [i * case.num_kv_heads + kv
                 for kv in range(case.num_kv_heads) for i in range(group)]
        order = _head_rows(heads, case.head_dim)

        def tile(layer: nn.Module) -> None:
            _reorder_qkv(case, layer.self_attn, q=order)
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
    if case.attention_bias and case.family != "glm4":
        yield Mutation("o_proj bias missing", edit=without("o_proj"))


def _other_rope(case: Case, **values: Any) -> dict[str, Any]:
    """A config change to RoPE parameters of another kind."""
    # Of Ministral's queries, which are no part of YaRN.
    kept = {key: case.rope_scaling[key]
            for key in ("llama_4_scaling_beta", "original_max_position_embeddings")
            if "llama_4_scaling_beta" in case.rope_scaling}
    return {"rope_parameters": kept | {"rope_theta": case.rope_theta} | values}


def _positions(case: Case) -> Iterator[Mutation]:
    kind = case.rope_scaling.get("rope_type")
    if kind:
        yield Mutation("rope scaling missing",
                       _other_rope(case, rope_type="default"))
        yield Mutation("rope scaling factor x 1.5",
                       _rope(case, factor=case.rope_scaling["factor"] * 1.5))
    if kind == "yarn":
        yield Mutation("yarn betas 32 and 1", _rope(case, beta_fast=32.0, beta_slow=1.0))
        if "mscale_all_dim" not in case.rope_scaling:  # which makes it 1
            yield Mutation("yarn attention factor 1", _rope(case, attention_factor=1.0))
        yield Mutation("linear instead of yarn",
                       _other_rope(case, rope_type="linear",
                                   factor=case.rope_scaling["factor"]))
        yield Mutation("original context = context length",
                       _rope(case, original_max_position_embeddings=CONTEXT_LENGTH))
        if "attention_factor" in case.rope_scaling:
            yield Mutation("attn_factor key ignored", _rope(case, attention_factor=None))
    if kind == "llama3":
        yield Mutation("linear instead of llama3",
                       _other_rope(case, rope_type="linear",
                                   factor=case.rope_scaling["factor"]))
    if case.sliding_window is not None and not case.family.startswith(("gemma", "gpt")):
        yield Mutation("no sliding window", {"sliding_window": None})
    if case.sliding_window is not None:
        for window in (case.sliding_window - 1, case.sliding_window + 1):
            yield Mutation(f"sliding window {window}", {"sliding_window": window})


def _activations(case: Case) -> Iterator[Mutation]:
    if case.activation not in ("silu", "gelu", "clamped_swiglu"):
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
        router = router_of(layer)
        if router is None:
            return
        for values in (router.weight, getattr(router, "bias", None),
                       getattr(router, "e_score_correction_bias", None)):
            if values is not None:
                values.copy_(values[order])

    yield Mutation("experts 0 and 1 swapped", edit=_each_layer(swap))

    def softmax_only(layer: nn.Module) -> None:
        # Undoes the normalization over the chosen: weights of the full softmax.
        def hook(_: nn.Module, __: Any, out: tuple) -> tuple:
            logits, _, chosen = out
            return logits, logits.softmax(-1).gather(-1, chosen), chosen

        router_of(layer).register_forward_hook(hook)

    if case.family == "qwen2_moe":
        yield from _shared_expert()
    elif case.family == "glm4_moe":
        yield from _sigmoid_router()
    else:
        yield Mutation("expert weights not normalized", edit=_each_layer(softmax_only))


def _sigmoid_router() -> Iterator[Mutation]:
    def no_bias(layer: nn.Module) -> None:
        if router_of(layer) is not None:
            router_of(layer).e_score_correction_bias.zero_()

    def no_shared(layer: nn.Module) -> None:
        if router_of(layer) is not None:
            layer.mlp.shared_experts.down_proj.weight.zero_()

    yield Mutation("experts chosen without bias", edit=_each_layer(no_bias))
    yield Mutation("no shared expert", edit=_each_layer(no_shared))


def _gpt_oss() -> Iterator[Mutation]:
    def zero(find: Callable[[nn.Module], torch.Tensor], value: float = 0.0) -> Edit:
        return _each_layer(lambda layer: find(layer).fill_(value))

    yield Mutation("no sinks", edit=zero(lambda layer: layer.self_attn.sinks, -40.0))
    yield Mutation("no router bias", edit=zero(lambda layer: layer.mlp.router.bias))
    experts = "mlp.experts"
    yield Mutation("no gate and up biases", edit=zero(
        lambda layer: layer.get_submodule(experts).gate_up_proj_bias))
    yield Mutation("no down biases", edit=zero(
        lambda layer: layer.get_submodule(experts).down_proj_bias))


def _shared_expert() -> Iterator[Mutation]:
    def no_shared(layer: nn.Module) -> None:
        layer.mlp.shared_expert.down_proj.weight.zero_()

    def no_gate(layer: nn.Module) -> None:
        # The sigmoid of 30 is 1 to float32.
        layer.mlp.shared_expert_gate.register_forward_hook(
            lambda _, __, out: torch.full_like(out, 30.0))

    yield Mutation("no shared expert", edit=_each_layer(no_shared))
    yield Mutation("shared expert not gated", edit=_each_layer(no_gate))


def _head(case: Case) -> Iterator[Mutation]:
    @torch.no_grad()
    def flat_norm(model: nn.Module) -> None:
        model.model.norm.weight.fill_(1.0 - case.norm_offset)

    yield Mutation("output_norm weight ignored", edit=flat_norm)

    @torch.no_grad()
    def roll(model: nn.Module) -> None:
        weight = model.get_output_embeddings().weight
        model.lm_head.weight = nn.Parameter(weight[torch.arange(VOCAB_SIZE) - 1])

    yield Mutation("output rows off by one", edit=roll)


def _of_family(case: Case) -> Iterator[Mutation]:
    if case.family == "gpt_oss":
        yield from _gpt_oss()
    for name, change in case.mistakes.items():
        yield Mutation(name, change)
    if case.activation == "gelu":
        yield Mutation("silu instead", {"hidden_activation": "silu"})
    if case.norm_offset:
        def other_scale(model: nn.Module) -> None:
            model.model.embed_tokens.embed_scale.fill_(1.0)

        yield Mutation("embeddings not scaled", edit=other_scale)


def mutations_for(case: Case) -> Iterator[Mutation]:
    """All mistakes that make sense for the case."""
    if case.is_older:
        yield from older.mutations(case, build_model(case))
        return
    for group in (_common, _heads, _biases, _positions, _activations, _experts, _head,
                  _of_family):
        yield from group(case)
