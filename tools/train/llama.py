"""A trained Llama read from GGUF, with an FFN whose activation can be chosen.

Layers are those of model.py. RoPE rotates adjacent pairs, as GGUF's llama layout
means it, so that rows of q and k are taken as they lie in the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, NamedTuple

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model import LAYER_TENSORS, Attention, ModelConfig, RmsNorm, concentration, rope_table

ACTIVATIONS = ("silu", "relu", "drelu")  # as hearth.ffn_activation names them


class FfnOutput(NamedTuple):
    output: Tensor   # [batch, time, hidden]
    penalty: Tensor  # scalar: how far from sparse; scaling the weights changes nothing
    active: Tensor   # scalar: share of neurons with a product other than zero


class FeedForward(nn.Module):
    """down(act(gate x) * up x), with relu(up x) for dReLU."""

    def __init__(self, config: ModelConfig, activation: str) -> None:
        super().__init__()
        self.activation = activation
        self.gate = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (activated gate, product), both [..., intermediate]."""
        gate, up = self.gate(x), self.up(x)
        gate = F.silu(gate) if self.activation == "silu" else F.relu(gate)
        return gate, gate * (F.relu(up) if self.activation == "drelu" else up)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.parts(x)[1])

    def run(self, x: Tensor) -> FfnOutput:
        gate, product = self.parts(x)
        penalty = concentration(product.abs()) + 0.5 * concentration(gate.abs())
        return FfnOutput(self.down(product), penalty, (product.detach() != 0).float().mean())


class Block(nn.Module):
    """One layer."""

    def __init__(self, config: ModelConfig, activation: str) -> None:
        super().__init__()
        self.attn_norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.attn = Attention(config)
        self.ffn_norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.ffn = FeedForward(config, activation)

    def attend(self, x: Tensor, table: Tensor) -> Tensor:
        return x + self.attn(self.attn_norm(x), table)


class Llama(nn.Module):
    """Embedding (also the output matrix), layers, norm. `config.context_length` bounds a window."""

    def __init__(self, config: ModelConfig, activation: str) -> None:
        super().__init__()
        self.config, self.activation = config, activation
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(Block(config, activation) for _ in range(config.num_layers))
        self.output_norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.register_buffer("rope", rope_table(config), persistent=False)

    def embed(self, tokens: Tensor) -> Tensor:
        """Returns F32 [batch, time, hidden]: the residual stays in F32 whatever the matrices are."""
        return self.embedding(tokens).float()

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(self.output_norm(hidden), self.embedding.weight)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns (logits [batch, time, vocab], mean penalty, active share per layer)."""
        x, table = self.embed(tokens), self.rope[: tokens.shape[1]]
        penalties, actives = [], []
        for block in self.blocks:
            x = block.attend(x, table)
            ffn = block.ffn.run(block.ffn_norm(x))
            x = x + ffn.output
            penalties.append(ffn.penalty)
            actives.append(ffn.active)
        return self.logits(x), torch.stack(penalties).mean(), torch.stack(actives)


def read_config(reader: gguf.GGUFReader, context: int) -> ModelConfig:
    """Sizes from the keys; refuses what this network does not compute."""
    def key(name: str) -> int | float:
        field = reader.get_field(name)
        if field is None:
            raise SystemExit(f"the file has no key {name}: a GGUF of architecture llama is needed")
        return field.contents()

    if key("general.architecture") != "llama":
        raise SystemExit(f"architecture {key('general.architecture')} is not llama, the only one that is read here")
    names = {tensor.name for tensor in reader.tensors}
    if "output.weight" in names or "rope_freqs.weight" in names or "blk.0.attn_q.bias" in names:
        raise SystemExit("an output matrix of its own, scaled RoPE or biases are not supported here")
    heads, hidden = key("llama.attention.head_count"), key("llama.embedding_length")
    if key("llama.rope.dimension_count") * heads != hidden:
        raise SystemExit("heads that do not add up to the hidden size are not supported here")
    embedding = next(tensor for tensor in reader.tensors if tensor.name == "token_embd.weight")
    return ModelConfig(
        vocab_size=int(embedding.shape[1]), hidden_size=hidden, intermediate_size=key("llama.feed_forward_length"),
        num_layers=key("llama.block_count"), num_heads=heads, num_kv_heads=key("llama.attention.head_count_kv"),
        context_length=context, rms_norm_eps=key("llama.attention.layer_norm_rms_epsilon"),
        rope_theta=key("llama.rope.freq_base"))


def tensor_names(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """(name in the network, name in the file) of every tensor."""
    yield "embedding.weight", "token_embd.weight"
    yield "output_norm.weight", "output_norm.weight"
    for layer in range(config.num_layers):
        for ours, theirs in LAYER_TENSORS.items():
            yield f"blocks.{layer}.{ours}", f"blk.{layer}.{theirs}"


def read_model(path: Path, activation: str, context: int) -> Llama:
    """The file's weights, dequantized, in a network with `activation`; F32, no gradients."""
    reader = gguf.GGUFReader(path)
    model = Llama(read_config(reader, context), activation)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    weights = {}
    for ours, theirs in tensor_names(model.config):
        tensor = stored[theirs]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        weights[ours] = torch.from_numpy(np.array(values, dtype=np.float32))
    model.load_state_dict(weights)
    return model.requires_grad_(False)


def halve_matrices(model: nn.Module) -> None:
    """Stores what is not trained in bfloat16; vectors stay F32."""
    for parameter in model.parameters():
        if parameter.dim() == 2 and not parameter.requires_grad:
            parameter.data = parameter.data.to(torch.bfloat16)


def copy_keys(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, replaced: set[str]) -> None:
    """All keys of the source but those in `replaced` and the writer's own."""
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in replaced or name == "general.architecture":
            continue
        kind, *inner = field.types
        writer.add_key_value(name, field.contents(), kind, sub_type=inner[0] if inner else None)


def write_model(model: Llama, source: Path, path: Path, matrices: gguf.GGMLQuantizationType, about: str) -> None:
    """The source's file with the weights of `model`: matrices as asked, the embedding as it was."""
    reader = gguf.GGUFReader(source)
    temporary = path.with_suffix(".part")
    writer = gguf.GGUFWriter(temporary, "llama")
    copy_keys(reader, writer, {"general.name", "general.file_type", "general.description", "hearth.ffn_activation"})
    name = reader.get_field("general.name")
    writer.add_name(f"{name.contents() if name else source.stem}, {model.activation}")
    writer.add_description(about)
    writer.add_string("hearth.ffn_activation", model.activation)
    file_type = {"Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0, "F16": gguf.LlamaFileType.MOSTLY_F16}
    writer.add_file_type(file_type[matrices.name])
    stored, weights = {tensor.name: tensor for tensor in reader.tensors}, model.state_dict()
    for ours, theirs in tensor_names(model.config):
        values = weights[ours].float().cpu().numpy()
        if ours == "embedding.weight":
            writer.add_tensor(theirs, stored[theirs].data, raw_dtype=stored[theirs].tensor_type)
        elif values.ndim == 2:
            writer.add_tensor(theirs, gguf.quants.quantize(values, matrices), raw_dtype=matrices)
        else:
            writer.add_tensor(theirs, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    temporary.replace(path)
