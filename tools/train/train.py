#!/usr/bin/env python3
"""Trains the story model; stops when its minutes are used up and can resume.

The learning rate follows the share of the time budget that is used, so a busy
machine sees fewer tokens but always reaches the end of the decay. A penalty on
the feed-forward activations is steered, layer by layer, so that the active share
meets a target.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from model import ModelConfig, StoryModel
from optimizers import make_optimizers
from parallel import ParallelStep, SingleStep
from vocabulary import BOS_ID

WARM_UP_SHARE = 0.01      # of the time
FINAL_LR_SHARE = 0.01     # of the peak rate
RARE_SHARE = 0.0015       # of all tokens: names, things and places are rarer than this
FREQUENCY_SAMPLE = 2_000_000
PRACTICE_END = 0.15       # share of the time after which no practice scenes are seen
GRADIENT_CLIP = 1.0       # norm of all gradients together
SPARSITY_START = 0.05     # share of the time after which the penalty begins
SPARSITY_RAMP_END = 0.35  # share of the time at which the target is reached
STEERING_RATE = 0.02      # relative change of the penalty per relative miss and step
PENALTY_START = 0.03
PENALTY_RANGE = (1e-3, 3.0)


@dataclass
class Progress:
    """Everything beside weights and optimizers that a checkpoint keeps."""

    step: int = 0
    windows: int = 0
    tokens: int = 0
    seconds: float = 0.0
    penalty_weight: list[float] = field(default_factory=list)  # per layer
    active: list[float] = field(default_factory=list)          # per layer, smoothed
    loss: float = 8.0


class Windows:
    """Training windows that all begin with <s>, in an order fixed by a seed."""

    def __init__(self, path: Path, length: int, seed: int) -> None:
        self.ids = np.memmap(path, dtype=np.uint16, mode="r")
        self.length = length
        counts = np.bincount(self.ids[:FREQUENCY_SAMPLE], minlength=1 << 16)
        self.rare = counts < RARE_SHARE * min(FREQUENCY_SAMPLE, len(self.ids))
        starts = np.flatnonzero(np.asarray(self.ids) == BOS_ID)
        starts = starts[starts + length + 1 <= len(self.ids)]
        # A window takes as many documents as fit; the one it cuts begins the next.
        following = np.maximum(np.searchsorted(starts, starts + length, side="right") - 1, np.arange(len(starts)) + 1)
        chosen, index = [], 0
        while index < len(starts):
            chosen.append(starts[index])
            index = int(following[index])
        self.starts = np.random.default_rng(seed).permutation(np.array(chosen))

    def batch(self, first: int, size: int) -> torch.Tensor:
        """Rows of length + 1 ids: `size` windows from number `first` on."""
        rows = [self.starts[(first + i) % len(self.starts)] for i in range(size)]
        block = np.stack([self.ids[s: s + self.length + 1] for s in rows]).astype(np.int64)
        return torch.from_numpy(block)

    def emphasis(self, block: torch.Tensor, weight: float) -> torch.Tensor:
        """Loss weights of block[:, 1:]: `weight` where a rare token repeats one of its document."""
        out = np.ones((len(block), self.length), dtype=np.float32)
        for row, ids in zip(out, block.tolist()):
            seen: set[int] = set()
            for position, token in enumerate(ids):
                if token == BOS_ID:
                    seen.clear()
                elif self.rare[token]:
                    if token in seen and position:
                        row[position - 1] = weight
                    seen.add(token)
        return torch.from_numpy(out)


def mixed_batch(windows: Windows, practice: Windows, progress: Progress, size: int, practice_share: float) -> torch.Tensor:
    """A batch in which the first rows are practice scenes."""
    practiced = round(size * practice_share)
    rows = [practice.batch(progress.windows, practiced)] if practiced else []
    rows += [windows.batch(progress.windows, size - practiced)] if practiced < size else []
    return torch.cat(rows)


def practice_share(done: float, start: float) -> float:
    """Share of practice windows: `start` at first, none after PRACTICE_END."""
    return start * max(0.0, 1 - done / PRACTICE_END)


def learning_rate_share(done: float) -> float:
    """Share of the peak rate after a share `done` of the time."""
    if done < WARM_UP_SHARE:
        return max(done / WARM_UP_SHARE, 0.02)
    x = min(1.0, (done - WARM_UP_SHARE) / (1 - WARM_UP_SHARE))
    return FINAL_LR_SHARE + (1 - FINAL_LR_SHARE) * 0.5 * (1 + math.cos(math.pi * x))


def steer_penalty(progress: Progress, done: float, target: float) -> list[float]:
    """Moves each layer's penalty toward the target active share; returns the weights to use."""
    if done < SPARSITY_START:
        return [0.0] * len(progress.active)
    ramp = min(1.0, (done - SPARSITY_START) / (SPARSITY_RAMP_END - SPARSITY_START))
    wanted = 0.25 + (target - 0.25) * ramp
    low, high = PENALTY_RANGE
    for layer, active in enumerate(progress.active):
        miss = max(-1.0, min(1.0, active / wanted - 1))
        weight = progress.penalty_weight[layer] * math.exp(STEERING_RATE * miss)
        progress.penalty_weight[layer] = min(high, max(low, weight))
    return progress.penalty_weight


def save(path: Path, model: StoryModel, optimizers: list, progress: Progress) -> None:
    """Writes a checkpoint so that a crash never leaves half a file."""
    state = {
        "config": model.config.to_dict(), "model": model.state_dict(),
        "optimizers": [o.state_dict() for o in optimizers], "progress": vars(progress),
        "rng": torch.get_rng_state(),
    }
    temporary = path.with_suffix(".tmp")
    torch.save(state, temporary)
    os.replace(temporary, path)


def restore(path: Path, model: StoryModel, optimizers: list, progress: Progress) -> None:
    """Continues exactly where save() stopped."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["optimizers"]):
        optimizer.load_state_dict(saved)
    for name, value in state["progress"].items():
        setattr(progress, name, value)
    torch.set_rng_state(state["rng"])


class GradientWorker:
    """Runs windows through the model in one process and sums their gradients."""

    def __init__(self, model: StoryModel, bf16: bool, compiled: bool) -> None:
        self.model = model
        self.runner = torch.compile(model) if compiled else model
        self.bf16 = bf16

    def run_window(self, rows: list[torch.Tensor], settings: torch.Tensor, share: float) -> torch.Tensor:
        """Adds the windows' gradient; returns [plain loss, active share per layer].

        `rows` are the windows and what the loss of each predicted token weighs; `settings` the penalty per layer.
        """
        window, emphasis = rows
        with torch.autocast(window.device.type, dtype=torch.bfloat16, enabled=self.bf16):
            logits, penalty, actives = self.runner(window[:, :-1])
        losses = F.cross_entropy(logits.float().flatten(0, 1), window[:, 1:].flatten(), reduction="none")
        loss = (losses * emphasis.flatten()).mean()
        ((loss + (settings * penalty).mean()) * share).backward()
        return torch.cat((losses.detach().mean().reshape(1), actives))


def make_stepper(args: argparse.Namespace, model: StoryModel) -> ParallelStep | SingleStep:
    """Processes on a CPU, whole batches on a GPU."""
    make_worker = functools.partial(GradientWorker, model, args.bf16, args.compile)
    if next(model.parameters()).is_cuda:
        return SingleStep(make_worker)
    model.share_memory()
    layers, length = model.config.num_layers, model.config.context_length
    rows = [torch.zeros(args.batch, length + 1, dtype=torch.int64), torch.ones(args.batch, length)]
    return ParallelStep(make_worker, rows, torch.zeros(layers), layers, args.workers)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.bin")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint file; resumed from when it exists")
    parser.add_argument("--minutes", type=float, default=80, help="processor time of the main process for the whole training")
    parser.add_argument("--batch", type=int, default=8, help="windows of 512 tokens per step")
    parser.add_argument("--muon-lr", type=float, default=0.016)
    parser.add_argument("--embedding-lr", type=float, default=1e-2)
    parser.add_argument("--norm-lr", type=float, default=2e-3)
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--active-target", type=float, default=0.08, help="share of neurons active per token")
    parser.add_argument("--repeat-weight", type=float, default=3,
                        help="loss weight of repeated rare words at the start; it falls to 1")
    parser.add_argument("--practice", type=float, default=0.6, help="share of practice windows at the start")
    parser.add_argument("--checkpoint-minutes", type=float, default=3)
    parser.add_argument("--workers", type=int, default=2, help="processes on a CPU")
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--report-steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def report(progress: Progress, weight: list[float], rate: float, total: float) -> None:
    """One line on how the training stands."""
    shares = " ".join(f"{a:.3f}" for a in progress.active)
    print(f"step {progress.step} loss {progress.loss:.3f} active [{shares}] penalty {sum(weight) / len(weight):.3f} "
          f"{rate:.0f} tok/s {progress.tokens / 1e6:.2f} M tokens {(total - progress.seconds) / 60:.1f} min left", flush=True)


def apply_gradients(model: StoryModel, optimizers: list, done: float) -> None:
    """One optimizer step at the rate of this moment."""
    torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_CLIP)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * learning_rate_share(done)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def train(args: argparse.Namespace, model: StoryModel, optimizers: list, stepper: ParallelStep | SingleStep,
          progress: Progress) -> None:
    """Steps until the minutes are used up."""
    windows = Windows(args.data / "train.bin", model.config.context_length, args.seed)
    practice = Windows(args.data / "practice.bin", model.config.context_length, args.seed)
    # A processor's time, not the clock's: a training that is stopped or crowded out loses nothing.
    total, last, last_save = args.minutes * 60, time.process_time(), progress.seconds
    reported_at, reported_tokens = time.monotonic(), progress.tokens
    while progress.seconds < total:
        done = progress.seconds / total
        batch = mixed_batch(windows, practice, progress, args.batch, practice_share(done, args.practice))
        weight = steer_penalty(progress, done, args.active_target)
        emphasis = windows.emphasis(batch, 1 + (args.repeat_weight - 1) * (1 - done))
        result = stepper.run([batch, emphasis], torch.tensor(weight))
        apply_gradients(model, optimizers, done)

        used = time.process_time()
        progress.seconds += used - last
        last = used
        progress.step += 1
        progress.windows += args.batch
        progress.tokens += batch[:, 1:].numel()
        progress.active = [0.9 * a + 0.1 * b for a, b in zip(progress.active, result.others)]
        progress.loss = 0.95 * progress.loss + 0.05 * result.loss if progress.step > 1 else result.loss
        if progress.step % args.report_steps == 0:
            now = time.monotonic()
            report(progress, weight, (progress.tokens - reported_tokens) / (now - reported_at), total)
            reported_at, reported_tokens = now, progress.tokens
        if progress.seconds - last_save > args.checkpoint_minutes * 60:
            save(args.out, model, optimizers, progress)
            last_save = progress.seconds


def main() -> None:
    args = parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = StoryModel(ModelConfig()).to(device)
    optimizers = make_optimizers(model, args.muon_lr, args.embedding_lr, args.norm_lr, args.weight_decay)
    layers = model.config.num_layers
    progress = Progress(penalty_weight=[PENALTY_START] * layers, active=[0.25] * layers)
    if args.out.exists():
        restore(args.out, model, optimizers, progress)
        print(f"resumed at step {progress.step}", flush=True)
    stepper = make_stepper(args, model)
    train(args, model, optimizers, stepper, progress)
    save(args.out, model, optimizers, progress)
    print(f"finished: {progress.step} steps, {progress.tokens} tokens, {progress.seconds / 60:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
