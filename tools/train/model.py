"""The network: Llama's shape with a dReLU feed-forward, as the engine runs it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


# Layer tensors: name in a checkpoint -> name in a GGUF file.
LAYER_TENSORS: dict[str, str] = {
    "attn_norm.weight": "attn_norm.weight", "attn.q.weight": "attn_q.weight", "attn.k.weight": "attn_k.weight",
    "attn.v.weight": "attn_v.weight", "attn.output.weight": "attn_output.weight",
    "ffn_norm.weight": "ffn_norm.weight", "ffn.gate.weight": "ffn_gate.weight",
    "ffn.up.weight": "ffn_up.weight", "ffn.down.weight": "ffn_down.weight",
}

# The layers add outputs of size 1 to 2 to the embedding. It must not drown in
# them, or later layers cannot see which token stood where, and the model never
# learns to repeat a name. The output norm starts small in turn, so that the
# first logits are about 1 although the output matrix is the embedding.
EMBEDDING_STD = 0.7
OUTPUT_NORM_START = 0.1


@dataclass(frozen=True)
class ModelConfig:
    """Sizes in Hugging Face's words."""

    vocab_size: int = 2048
    hidden_size: int = 256
    intermediate_size: int = 1024
    num_layers: int = 5
    num_heads: int = 8
    num_kv_heads: int = 4
    context_length: int = 512
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    def to_dict(self) -> dict:
        return asdict(self)


class RmsNorm(nn.Module):
    """x / rms(x) * weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def rope_table(config: ModelConfig) -> Tensor:
    """Complex rotations [context, head_dim / 2] for adjacent pairs (2i, 2i + 1)."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(config.context_length, dtype=torch.float32), config.rope_theta ** -half)
    return torch.stack((angles.cos(), angles.sin()), dim=-1)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotates adjacent pairs of x [batch, heads, time, head_dim]."""
    pairs = x.unflatten(-1, (-1, 2))
    cos, sin = table[..., 0], table[..., 1]
    even, odd = pairs[..., 0], pairs[..., 1]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Attention(nn.Module):
    """Causal attention in which several query heads share a key-value head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        kv_size = config.num_kv_heads * config.head_dim
        self.q = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.k = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.v = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.output = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        def heads(y: Tensor) -> Tensor:
            return y.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)

        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        q, k = rotate(q, table).to(v.dtype), rotate(k, table).to(v.dtype)
        group = self.config.num_heads // self.config.num_kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(y.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    """down(relu(gate x) * relu(up x)); also reports how sparse the product is."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gate = F.relu(self.gate(x))
        product = gate * F.relu(self.up(x))
        penalty = concentration(product) + 0.5 * concentration(gate)
        active = (product.detach() > 0).float().mean()
        return self.down(product), penalty, active


def concentration(h: Tensor) -> Tensor:
    """Mean over tokens of L1 / (L2 * sqrt(n)): an L1 penalty that scaling cannot cheat."""
    h = h.float()
    l2 = h.square().sum(-1).add(1e-6).sqrt()
    return (h.sum(-1) / l2).mean() / h.shape[-1] ** 0.5


class Block(nn.Module):
    """One layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attn_norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.attn = Attention(config)
        self.ffn_norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.ffn = FeedForward(config)

    def forward(self, x: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x + self.attn(self.attn_norm(x), table)
        y, penalty, active = self.ffn(self.ffn_norm(x))
        return x + y, penalty, active


class StoryModel(nn.Module):
    """Embedding, layers, norm, and the embedding again as output (tied)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.output_norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.register_buffer("rope", rope_table(config), persistent=False)
        self._initialize()

    def _initialize(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                scale = EMBEDDING_STD if "embedding" in name else parameter.shape[1] ** -0.5
                if name.endswith(("attn.output.weight", "ffn.down.weight")):
                    scale /= (2 * self.config.num_layers) ** 0.5
                nn.init.normal_(parameter, std=scale)
        nn.init.constant_(self.output_norm.weight, OUTPUT_NORM_START)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(logits [batch, time, vocab], penalty per layer, active share per layer)."""
        x = self.embedding(tokens)
        table = self.rope[: tokens.shape[1]]
        penalties, actives = [], []
        for block in self.blocks:
            x, penalty, active = block(x, table)
            penalties.append(penalty)
            actives.append(active)
        logits = F.linear(self.output_norm(x), self.embedding.weight)
        return logits, torch.stack(penalties), torch.stack(actives)
