"""Data-parallel gradients on a CPU that other jobs use too.

One OpenMP team waits at every operation for its slowest thread, so a busy
neighbor on one core halts all of it. Here each worker is a process with one
thread that takes the next window of the batch as soon as it is free; the only
wait is at the end of a step, for one window at most.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor

from model import StoryModel

# How often a waiting helper looks whether its parent still lives.
PARENT_CHECK_SECONDS = 10


@dataclass
class StepResult:
    """Means over a step's windows."""

    loss: float
    actives: list[float]


class GradientWorker:
    """Runs windows through the model in one process and sums their gradients."""

    def __init__(self, model: StoryModel, bf16: bool, compiled: bool) -> None:
        self.model = model
        self.runner = torch.compile(model) if compiled else model
        self.bf16 = bf16

    def run_window(self, window: Tensor, emphasis: Tensor, penalty_weight: Tensor, share: float) -> Tensor:
        """Adds the window's gradient; returns [plain loss, active share per layer].

        `emphasis` [batch, time] weighs the loss of each predicted token.
        """
        with torch.autocast(window.device.type, dtype=torch.bfloat16, enabled=self.bf16):
            logits, penalty, actives = self.runner(window[:, :-1])
        losses = F.cross_entropy(logits.float().flatten(0, 1), window[:, 1:].flatten(), reduction="none")
        loss = (losses * emphasis.flatten()).mean()
        ((loss + (penalty_weight * penalty).mean()) * share).backward()
        return torch.cat((losses.detach().mean().reshape(1), actives.cpu() if actives.is_cuda else actives))


class Shared:
    """What the processes of a step have in common; all tensors are shared memory."""

    def __init__(self, model: StoryModel, batch: int, workers: int) -> None:
        layers, length = model.config.num_layers, model.config.context_length
        self.model = model.share_memory()
        self.windows = torch.zeros(batch, length + 1, dtype=torch.int64).share_memory_()
        self.emphasis = torch.ones(batch, length).share_memory_()
        self.penalty_weight = torch.zeros(layers).share_memory_()
        self.stats = torch.zeros(batch, 1 + layers).share_memory_()
        sizes = sum(p.numel() for p in model.parameters())
        self.gradients = torch.zeros(workers, sizes).share_memory_()
        context = mp.get_context("spawn")
        self.next_window = context.Value("i", 0)
        self.start = [context.Semaphore(0) for _ in range(workers)]
        self.done = context.Semaphore(0)


def take_windows(shared: Shared, worker: GradientWorker) -> None:
    """Works through the windows nobody has taken yet."""
    batch = len(shared.windows)
    while True:
        with shared.next_window.get_lock():
            index = shared.next_window.value
            shared.next_window.value += 1
        if index >= batch:
            return
        row = slice(index, index + 1)
        shared.stats[index] = worker.run_window(shared.windows[row], shared.emphasis[row], shared.penalty_weight, 1 / batch)


def helper_main(rank: int, shared: Shared, bf16: bool, compiled: bool) -> None:
    """Body of the extra processes: for each step, add up gradients and hand them over."""
    torch.set_num_threads(1)
    worker = GradientWorker(shared.model, bf16, compiled)
    while mp.parent_process().is_alive():
        if not shared.start[rank].acquire(timeout=PARENT_CHECK_SECONDS):
            continue
        for parameter in shared.model.parameters():
            parameter.grad = None
        take_windows(shared, worker)
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in shared.model.parameters()]
        torch.cat([g.flatten() for g in grads], out=shared.gradients[rank])
        shared.done.release()


class ParallelStep:
    """Computes a batch's gradient with `workers` processes, this one included."""

    def __init__(self, model: StoryModel, batch: int, workers: int, bf16: bool, compiled: bool) -> None:
        self.shared = Shared(model, batch, workers)
        self.worker = GradientWorker(model, bf16, compiled)
        context = mp.get_context("spawn")
        self.helpers = [
            context.Process(target=helper_main, args=(rank, self.shared, bf16, compiled), daemon=True)
            for rank in range(1, workers)
        ]
        for helper in self.helpers:
            helper.start()

    def run(self, windows: Tensor, emphasis: Tensor, penalty_weight: list[float]) -> StepResult:
        """Leaves the mean gradient in the parameters' .grad."""
        shared = self.shared
        shared.windows.copy_(windows)
        shared.emphasis.copy_(emphasis)
        shared.penalty_weight.copy_(torch.tensor(penalty_weight))
        shared.next_window.value = 0
        for rank in range(1, len(self.helpers) + 1):
            shared.start[rank].release()
        take_windows(shared, self.worker)
        for _ in self.helpers:
            shared.done.acquire()
        for rank in range(1, len(self.helpers) + 1):
            self._add(shared.gradients[rank])
        mean = shared.stats.mean(0).tolist()
        return StepResult(mean[0], mean[1:])

    def _add(self, flat: Tensor) -> None:
        offset = 0
        for parameter in self.shared.model.parameters():
            part = flat[offset: offset + parameter.numel()].view_as(parameter)
            parameter.grad = part.clone() if parameter.grad is None else parameter.grad.add_(part)
            offset += parameter.numel()
