"""Muon for the weight matrices of the layers, AdamW for everything else.

Muon replaces a matrix's momentum by the nearest matrix with equal singular
values. On a model this small it needs clearly fewer tokens than AdamW.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Quintic iteration whose odd polynomial pushes singular values toward 1.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5


def orthogonalized(matrix: Tensor) -> Tensor:
    """Approximately U V^T of a matrix; bfloat16 is exact enough for a direction."""
    a, b, c = NEWTON_SCHULZ
    flip = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if flip else matrix
    x = (x / (x.norm() + 1e-7)).to(torch.bfloat16).contiguous()
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.T if flip else x).to(matrix.dtype)


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalized, with decoupled weight decay."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float = 0.95,
                 weight_decay: float = 0.0) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(parameter)
                state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                update = orthogonalized(parameter.grad.lerp(state["momentum"], group["momentum"]))
                scale = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"] * scale)


def make_optimizers(model: nn.Module, muon_lr: float, embedding_lr: float, norm_lr: float,
                    weight_decay: float) -> list[torch.optim.Optimizer]:
    """[Muon, AdamW]; each group remembers its peak rate for the schedule."""
    named = list(model.named_parameters())
    matrices = [p for n, p in named if p.dim() == 2 and "embedding" not in n]
    groups = [{"params": [p for n, p in named if "embedding" in n], "lr": embedding_lr},
              {"params": [p for _, p in named if p.dim() == 1], "lr": norm_lr}]
    optimizers = [Muon(matrices, muon_lr, weight_decay=weight_decay),
                  torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0, fused=True)]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers
