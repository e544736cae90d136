"""Data-parallel gradients on a CPU that other jobs use too.

One OpenMP team waits at every operation for its slowest thread, so a busy
neighbor on one core halts all of it. Here each worker is a process with one
thread that takes the next window of the batch as soon as it is free; the only
wait is at the end of a step, for one window at most.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.multiprocessing as mp
from torch import Tensor, nn

# How often a waiting helper looks whether its parent still lives.
PARENT_CHECK_SECONDS = 10


@dataclass
class StepResult:
    """Means over a step's windows."""

    loss: float
    others: list[float]  # what else a worker measures


class Worker(Protocol):
    """Computes gradients of `model`; every process of a step makes its own."""

    model: nn.Module

    def run_window(self, rows: list[Tensor], settings: Tensor, share: float) -> Tensor:
        """Adds `share` times the gradient of `rows` [batch, ...]; returns [loss, others...] as they are on average."""


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


class Shared:
    """What the processes of a step have in common; all tensors are shared memory."""

    def __init__(self, rows: list[Tensor], settings: Tensor, others: int, trained_values: int, workers: int) -> None:
        self.rows = [torch.zeros_like(row).share_memory_() for row in rows]
        self.settings = torch.zeros_like(settings).share_memory_()
        self.stats = torch.zeros(len(rows[0]), 1 + others).share_memory_()
        self.gradients = torch.zeros(max(workers - 1, 0), trained_values).share_memory_()
        context = mp.get_context("spawn")
        self.next_window = context.Value("i", 0)
        self.start = [context.Semaphore(0) for _ in range(1, workers)]
        self.done = context.Semaphore(0)


def take_windows(shared: Shared, worker: Worker) -> None:
    """Works through the windows nobody has taken yet."""
    batch = len(shared.stats)
    while True:
        with shared.next_window.get_lock():
            index = shared.next_window.value
            shared.next_window.value += 1
        if index >= batch:
            return
        rows = [row[index: index + 1] for row in shared.rows]
        shared.stats[index] = worker.run_window(rows, shared.settings, 1 / batch)


def helper_main(index: int, shared: Shared, make_worker: Callable[[], Worker]) -> None:
    """Body of the extra processes: for each step, add up gradients and hand them over."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the helpers
    busy, leaving = False, False

    def leave(*_: object) -> None:
        """A step that has begun is ended first: a signal to all processes must not spoil the parent's last step."""
        nonlocal leaving
        leaving = True
        if not busy:
            sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    worker = make_worker()
    parameters = trained(worker.model)
    while mp.parent_process().is_alive() and not leaving:
        if not shared.start[index].acquire(timeout=PARENT_CHECK_SECONDS):
            continue
        busy = True
        for parameter in parameters:
            parameter.grad = None
        take_windows(shared, worker)
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        torch.cat([g.flatten() for g in grads], out=shared.gradients[index])
        shared.done.release()
        busy = False


class ParallelStep:
    """Computes a batch's gradient with `workers` processes, this one included.

    `make_worker` must be picklable, and its model in shared memory. `rows` [batch, ...] and `settings` show
    the shapes that run() will get; `others` is how many values beside the loss a worker returns.
    """

    def __init__(self, make_worker: Callable[[], Worker], rows: list[Tensor], settings: Tensor, others: int,
                 workers: int) -> None:
        self.worker = make_worker()
        self.parameters = trained(self.worker.model)
        self.shared = Shared(rows, settings, others, sum(p.numel() for p in self.parameters), workers)
        context = mp.get_context("spawn")
        self.helpers = [context.Process(target=helper_main, args=(index, self.shared, make_worker), daemon=True)
                        for index in range(workers - 1)]
        for helper in self.helpers:
            helper.start()

    def run(self, rows: list[Tensor], settings: Tensor) -> StepResult:
        """Leaves the mean gradient in the parameters' .grad."""
        shared = self.shared
        for there, row in zip(shared.rows, rows):
            there.copy_(row)
        shared.settings.copy_(settings)
        shared.next_window.value = 0
        for start in shared.start:
            start.release()
        take_windows(shared, self.worker)
        for _ in self.helpers:
            self._wait()
        for gradients in shared.gradients:
            self._add(gradients)
        mean = shared.stats.mean(0).tolist()
        return StepResult(mean[0], mean[1:])

    def _wait(self) -> None:
        while not self.shared.done.acquire(timeout=PARENT_CHECK_SECONDS):
            if not all(helper.is_alive() for helper in self.helpers):
                raise RuntimeError("a helper process has ended; the last saved state is whole")

    def _add(self, flat: Tensor) -> None:
        offset = 0
        for parameter in self.parameters:
            part = flat[offset: offset + parameter.numel()].view_as(parameter)
            parameter.grad = part.clone() if parameter.grad is None else parameter.grad.add_(part)
            offset += parameter.numel()


class SingleStep:
    """A whole batch at once, for a GPU."""

    def __init__(self, make_worker: Callable[[], Worker]) -> None:
        self.worker = make_worker()

    def run(self, rows: list[Tensor], settings: Tensor) -> StepResult:
        device = next(self.worker.model.parameters()).device
        stats = self.worker.run_window([row.to(device) for row in rows], settings.to(device), 1.0).tolist()
        return StepResult(stats[0], stats[1:])
