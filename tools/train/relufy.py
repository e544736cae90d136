#!/usr/bin/env python3
"""Turns a SiLU Llama into one with ReGLU or dReLU FFNs, which are sparse.

  relufy.py text    windows to train on: prose, and what the model writes itself
  relufy.py layers  stage 1: every new FFN learns to answer as the old one of its layer
  relufy.py train   stage 2: the whole learns to predict as the original, with a penalty on activations
  relufy.py export  writes the result as GGUF
  relufy.py check   compares a GGUF's perplexity with that of `hearth eval`

Both stages count tokens, not time: they may be stopped (Ctrl-C, kill, --minutes) and the same command goes on.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from llama import ACTIVATIONS, Llama, halve_matrices, read_model, write_model
from own_text import Mixture, Prose, cut, first_token, tokenize, write_rounds
from parallel import ParallelStep, SingleStep, trained

CONTEXT = 512
CHAT = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\n")
END_OF_TEXT = "<|endoftext|>"

WARM_UP_STEPS = 20
DECAY_SHARE = 0.25        # of the tokens; the rate falls to FINAL_RATE_SHARE over them
FINAL_RATE_SHARE = 0.05
RAMP_SHARE = 0.5          # of the tokens after which the active share is to be at its target
STEERING_RATE = 0.05      # relative change of the penalty per relative miss and step
PENALTY_START = 0.01
PENALTY_RANGE = (1e-4, 1.0)
GRADIENT_CLIP = 1.0       # norm of all gradients together
RIDGE = 1e-3              # of the mean diagonal: how strongly fitted columns of down are drawn to the old ones
FIT_WINDOWS = 48          # 16 tokens per neuron
LOG_STEPS = 10
CHECK_TOLERANCE = 0.02    # of the perplexity: the engine rounds activations to eight bits


@dataclass
class Progress:
    """Everything beside weights and optimizer that a state keeps."""

    activation: str = ""
    steps: int = 0
    windows: int = 0
    tokens: int = 0
    seconds: float = 0.0       # by the clock, while it ran
    penalty_weight: float = PENALTY_START
    start_active: float = 0.0  # mean over layers, before anything was penalized
    active: list[float] = field(default_factory=list)  # per layer, smoothed
    loss: float = 0.0          # smoothed


class LayerWorker:
    """Stage 1: each layer alone, with the input that the original gives it."""

    def __init__(self, model: Llama, original: Llama) -> None:
        self.model, self.original = model, original

    def run_window(self, rows: list[Tensor], settings: Tensor, share: float) -> Tensor:
        """Returns [mean relative error, active share per layer]. `settings` is the weight of the penalty."""
        original, tokens = self.original, rows[0]
        table = original.rope[: tokens.shape[1]]
        errors, actives = [], []
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
            x = original.embed(tokens)
            for old, new in zip(original.blocks, self.model.blocks):
                with torch.no_grad():
                    x = old.attend(x, table)
                    n = old.ffn_norm(x)
                    wanted = old.ffn(n).float()
                ffn = new.ffn.run(n)
                error = relative_error(ffn.output, wanted)
                ((error + settings[0] * ffn.penalty) * (share / len(original.blocks))).backward()
                x = x + wanted
                errors.append(error.detach())
                actives.append(ffn.active)
        return torch.stack([torch.stack(errors).mean(), *actives])


class WholeWorker:
    """Stage 2: the model's predictions against the original's."""

    def __init__(self, model: Llama, original: Llama) -> None:
        self.model, self.original = model, original

    def run_window(self, rows: list[Tensor], settings: Tensor, share: float) -> Tensor:
        """Returns [KL divergence in nats per token, active share per layer]."""
        tokens = rows[0]
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
            with torch.no_grad():
                wanted = self.original(tokens)[0].float().log_softmax(-1)
            logits, penalty, actives = self.model(tokens)
        divergence = F.kl_div(logits.float().log_softmax(-1), wanted, reduction="none", log_target=True).sum(-1).mean()
        ((divergence + settings[0] * penalty) * share).backward()
        return torch.cat((divergence.detach().reshape(1), actives))


def relative_error(output: Tensor, wanted: Tensor) -> Tensor:
    """Mean over tokens of |output - wanted|^2 / |wanted|^2: the few tokens with huge outputs count once, too."""
    norms = wanted.square().sum(-1)
    return ((output.float() - wanted).square().sum(-1) / (norms + 1e-9 * norms.mean())).mean()


@torch.no_grad()
def start_layers(model: Llama, original: Llama, windows: Tensor) -> None:
    """Turns signs of dReLU's up so that more of it is positive, and fits every down by least squares."""
    size, hidden = model.config.intermediate_size, model.config.hidden_size
    table = model.rope[: windows.shape[1]]
    signs = [torch.zeros(size) for _ in model.blocks]
    grams = [torch.zeros(size, size) for _ in model.blocks]
    targets = [torch.zeros(size, hidden) for _ in model.blocks]

    def visit(rows: Tensor, look: str) -> None:
        for row in rows:
            x = original.embed(row[None])
            for layer, (old, new) in enumerate(zip(original.blocks, model.blocks)):
                x = old.attend(x, table)
                n = old.ffn_norm(x)
                y = old.ffn(n).float()
                if look == "signs":
                    signs[layer] += (F.relu(new.ffn.gate(n)) * new.ffn.up(n)).float().sum((0, 1))
                else:
                    scale = y.norm(dim=-1, keepdim=True).clamp_min(1e-6)
                    h, wanted = (new.ffn.parts(n)[1].float() / scale)[0], (y / scale)[0]
                    with torch.autocast("cpu", enabled=False):
                        grams[layer].addmm_(h.T, h)
                        targets[layer].addmm_(h.T, wanted)
                x = x + y

    # Autocast keeps casts of weights until its end, so that each visit has its own.
    if model.activation == "drelu":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            visit(windows[:8], "signs")
        for block, sign in zip(model.blocks, signs):
            turn = torch.where(sign < 0, -1.0, 1.0)
            block.ffn.up.weight.mul_(turn[:, None])
            block.ffn.down.weight.mul_(turn)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        visit(windows, "products")
    for block, gram, target in zip(model.blocks, grams, targets):
        ridge = RIDGE * gram.diagonal().mean()
        old_down = block.ffn.down.weight.T
        fitted = torch.linalg.solve(gram + ridge * torch.eye(size), target + ridge * old_down)
        block.ffn.down.weight.copy_(fitted.T)


def rate_share(progress: Progress, tokens: int) -> float:
    """Share of the peak rate: up, flat, and down at the end. More tokens later raise it again."""
    left = 1 - progress.tokens / tokens
    return min(1.0, (progress.steps + 1) / WARM_UP_STEPS, max(FINAL_RATE_SHARE, left / DECAY_SHARE))


def steer(progress: Progress, tokens: int, target: float) -> float:
    """Moves the penalty so that the mean active share follows a ramp to `target`; returns its weight."""
    ramp = min(1.0, progress.tokens / (RAMP_SHARE * tokens))
    wanted = progress.start_active + (target - progress.start_active) * ramp
    active = sum(progress.active) / len(progress.active)
    miss = max(-1.0, min(1.0, 5 * (active / wanted - 1)))
    low, high = PENALTY_RANGE
    progress.penalty_weight = min(high, max(low, progress.penalty_weight * math.exp(STEERING_RATE * miss)))
    return progress.penalty_weight


class Run:
    """One stage: model, optimizer, progress, and the file that they are saved in."""

    def __init__(self, args: argparse.Namespace, stage: str) -> None:
        self.args, self.stage, self.path = args, stage, args.work / f"{stage}.pt"
        self.stopped = False
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        start = self.path if self.path.exists() else (args.work / "layers.pt" if stage == "train" else None)
        if start is not None and not start.exists():
            raise SystemExit(f"{start} is missing: run the stage `layers` first")
        state = torch.load(start, map_location="cpu", weights_only=True) if start else None
        activation = state["progress"]["activation"] if state else args.activation
        self.mixture = Mixture(args.work, args.own_share, args.seed)
        self.original = read_model(args.model, "silu", CONTEXT)
        halve_matrices(self.original)
        self.model = read_model(args.model, activation, CONTEXT)
        self.progress = Progress(activation=activation, active=[0.0] * self.model.config.num_layers)
        if state:
            self.model.load_state_dict(state["weights"], strict=False)
        else:
            start_layers(self.model, self.original, self.mixture.batch(0, args.fit_windows))
        self._choose_trained()
        halve_matrices(self.model)
        self.original.to(device)
        self.model.to(device)
        self.optimizer = self._make_optimizer()
        if start == self.path:
            self.optimizer.load_state_dict(state["optimizer"])
            self.progress = Progress(**state["progress"])

    def _choose_trained(self) -> None:
        """Stage 1 trains the matrices of FFNs, stage 2 all of the layers; the embedding stays."""
        self.model.blocks.requires_grad_(self.stage == "train")
        self.model.output_norm.requires_grad_(self.stage == "train")
        for block in self.model.blocks:
            block.ffn.requires_grad_(True)

    def _make_optimizer(self) -> torch.optim.Optimizer:
        ffn = [p for name, p in self.model.named_parameters() if p.requires_grad and ".ffn." in name]
        others = [p for name, p in self.model.named_parameters() if p.requires_grad and ".ffn." not in name]
        groups = [{"params": ffn, "peak_lr": self.args.lr}]
        if others:
            groups.append({"params": others, "peak_lr": self.args.lr / 2})
        return torch.optim.AdamW(groups, lr=self.args.lr, betas=(0.9, 0.98), weight_decay=0.0, fused=True)

    def make_stepper(self) -> ParallelStep | SingleStep:
        make = LayerWorker if self.stage == "layers" else WholeWorker
        make_worker = functools.partial(make, self.model, self.original)
        if self.model.rope.is_cuda:
            return SingleStep(make_worker)
        for model in (self.model, self.original):
            model.share_memory()
        rows = [torch.zeros(self.args.batch, CONTEXT, dtype=torch.int64)]
        return ParallelStep(make_worker, rows, torch.zeros(1), self.model.config.num_layers, self.args.workers)

    def save(self) -> None:
        """Writes the state so that a crash never leaves half a file."""
        weights = {name: p.detach() for name, p in self.model.named_parameters() if not name.startswith("embedding.")}
        state = {"weights": weights, "optimizer": self.optimizer.state_dict(), "progress": asdict(self.progress)}
        temporary = self.path.with_suffix(".tmp")
        torch.save(state, temporary)
        os.replace(temporary, self.path)

    def step(self, stepper: ParallelStep | SingleStep) -> None:
        """One batch and one change of the weights."""
        progress, args = self.progress, self.args
        weight = steer(progress, args.tokens, args.active_target) if progress.steps else 0.0
        batch = self.mixture.batch(progress.windows, args.batch)
        result = stepper.run([batch], torch.tensor([weight]))
        nn.utils.clip_grad_norm_(trained(self.model), GRADIENT_CLIP)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak_lr"] * rate_share(progress, args.tokens)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        keep = 0.8 if progress.steps else 0.0
        progress.active = [keep * a + (1 - keep) * b for a, b in zip(progress.active, result.others)]
        progress.loss = keep * progress.loss + (1 - keep) * result.loss
        if progress.steps == 0:
            progress.start_active = sum(progress.active) / len(progress.active)
        progress.steps += 1
        progress.windows += args.batch
        progress.tokens += batch.numel()

    def run(self) -> None:
        """Steps until the tokens or the minutes are used up, or a signal comes."""
        before = {number: signal.signal(number, lambda *_: setattr(self, "stopped", True))
                  for number in (signal.SIGINT, signal.SIGTERM)}
        stepper, progress, args = self.make_stepper(), self.progress, self.args
        began = last = saved = time.monotonic()
        tokens_before = progress.tokens
        while progress.tokens < args.tokens and not self.stopped and last - began < 60 * args.minutes:
            self.step(stepper)
            now = time.monotonic()
            progress.seconds += now - last
            last = now
            rate = (progress.tokens - tokens_before) / (now - began)
            show(progress, args.tokens, rate)
            if progress.steps % LOG_STEPS == 0:
                with open(args.work / f"{self.stage}.jsonl", "a", encoding="utf-8") as log:
                    log.write(json.dumps(asdict(progress) | {"tokens_per_second": rate}) + "\n")
            if now - saved > 60 * args.save_minutes:
                self.save()
                saved = now
        self.save()
        for number, handler in before.items():
            signal.signal(number, handler)
        end = "done" if progress.tokens >= args.tokens else "stopped: the same command goes on"
        print(f"{self.stage}: {describe(progress)}, {progress.seconds / 3600:.2f} h; {end}", flush=True)


def describe(progress: Progress) -> str:
    active = sum(progress.active) / len(progress.active)
    return (f"{progress.steps} steps, {progress.tokens / 1e6:.3f} M tokens, loss {progress.loss:.4f}, "
            f"active {100 * active:.1f}%, penalty {progress.penalty_weight:.4f}")


def show(progress: Progress, tokens: int, rate: float) -> None:
    """A line that replaces itself; nothing where nobody watches."""
    if sys.stderr.isatty():
        left = (tokens - progress.tokens) / rate / 60
        print(f"\r{describe(progress)}, {rate:.0f} tok/s, {left:.0f} min left  ", end="", file=sys.stderr, flush=True)


@torch.no_grad()
def perplexity(model: Llama, ids: np.ndarray, bos: int) -> tuple[float, list[float]]:
    """(perplexity as `hearth eval` counts it: windows of `bos` and CONTEXT - 1 ids; active share per layer)."""
    nats, actives = 0.0, torch.zeros(model.config.num_layers)
    for first in range(0, len(ids), CONTEXT - 1):
        part = ids[first: first + CONTEXT - 1]
        tokens = torch.tensor([[bos, *part.tolist()]])
        logits, _, active = model(tokens)
        nats += F.cross_entropy(logits[0, :-1].float(), tokens[0, 1:], reduction="sum").item()
        actives += active * len(part)
    return math.exp(nats / len(ids)), (actives / len(ids)).tolist()


def text(args: argparse.Namespace) -> None:
    """Command `text`."""
    def ids(words: str) -> list[int]:
        done = subprocess.run([args.hearth, "tokenize", args.model, "--special", "-p", words], capture_output=True,
                              text=True, check=True)
        return [int(word) for word in done.stdout.split()]

    bos = first_token(args.model)
    if not (args.work / "prose.npy").exists():
        parts = [cut(tokenize(args.hearth, args.model, part, args.work), CONTEXT, bos)
                 for prose in args.prose for part in prose.parts()]
        np.save(args.work / "prose.npy", np.concatenate(parts))
    if len(ids(END_OF_TEXT)) != 1 or len(ids("<|im_start|>")) != 1:
        raise SystemExit(f"{args.model}: its vocabulary has no {END_OF_TEXT} or no <|im_start|>, from which it would write")
    prefixes = [ids(CHAT), ids(END_OF_TEXT), ids(CHAT), [bos]]
    written = write_rounds(args.model, prefixes, CONTEXT, args.rounds, args.work, args.workers)
    mixture = Mixture(args.work, 0.5, 1)
    own, prose = (source.size / 1e6 for source in mixture.sources)
    print(f"{written} files written; {own:.2f} M tokens of its own, {prose:.2f} M of prose")


def export(args: argparse.Namespace) -> None:
    """Command `export`."""
    state = torch.load(args.state, map_location="cpu", weights_only=True)
    progress = Progress(**state["progress"])
    model = read_model(args.model, progress.activation, CONTEXT)
    model.load_state_dict(state["weights"], strict=False)
    about = (f"{args.model.name} with {progress.activation} FFNs, by tools/train/relufy.py of the Hearth project "
             f"(changed weights: {args.state.stem}, {progress.tokens / 1e6:.2f} M tokens)")
    write_model(model, args.model, args.out, gguf.GGMLQuantizationType[args.type.upper()], about)
    print(f"{args.out}: {args.out.stat().st_size} bytes, {describe(progress)}")


def check(args: argparse.Namespace) -> None:
    """Command `check`."""
    torch.set_num_threads(args.workers)
    said = gguf.GGUFReader(args.gguf).get_field("hearth.ffn_activation")
    activation = said.contents() if said else "silu"
    ids = tokenize(args.hearth, args.gguf, args.text.read_text(encoding="utf-8"), args.work)
    ours, active = perplexity(read_model(args.gguf, activation, CONTEXT), ids, first_token(args.gguf))
    done = subprocess.run([args.hearth, "eval", args.gguf, "--text", args.text, "--ctx", str(CONTEXT), "--mode",
                           "dense", "--json"], capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)
    print(f"{activation}: perplexity {ours:.3f} here over {len(ids)} tokens, {theirs['perplexity']:.3f} by hearth over "
          f"{theirs['tokens']}; active " + " ".join(f"{100 * share:.1f}" for share in active))
    if theirs["tokens"] != len(ids) or abs(ours / theirs["perplexity"] - 1) > CHECK_TOLERANCE:
        raise SystemExit("hearth computes something else than this network")


def add_stage(commands: argparse._SubParsersAction, name: str, lr: float, tokens: int) -> argparse.ArgumentParser:
    parser = commands.add_parser(name)
    parser.add_argument("--tokens", type=int, default=tokens, help="for the whole stage; the schedule follows them")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after these; the same command goes on")
    parser.add_argument("--lr", type=float, default=lr)
    parser.add_argument("--batch", type=int, default=4, help=f"windows of {CONTEXT} tokens per step")
    parser.add_argument("--active-target", type=float, default=0.15, help="mean share of neurons active per token")
    parser.add_argument("--own-share", type=float, default=0.5, help="share of windows that the model wrote itself")
    parser.add_argument("--save-minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    return parser


def parse_arguments() -> argparse.Namespace:
    root = Path(__file__).resolve().parent.parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for text, states and logs; 4 GB")
    parser.add_argument("--model", type=Path, help="the original: a GGUF of architecture llama")
    parser.add_argument("--hearth", type=Path, default=root / "build/release/bin/hearth")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes, of one thread each")
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("text")
    made.add_argument("--prose", type=Prose.parse, action="append", required=True, metavar="FILE[:FIRST-LAST]",
                      help="text, and bytes of it that are held back; may be repeated")
    made.add_argument("--rounds", type=int, default=12, help="files of 64 texts that the model writes")
    layers = add_stage(commands, "layers", 1e-3, 600_000)
    layers.add_argument("--activation", choices=ACTIVATIONS[1:], default="drelu")
    layers.add_argument("--fit-windows", type=int, default=FIT_WINDOWS)
    add_stage(commands, "train", 2e-4, 2_400_000)
    exported = commands.add_parser("export")
    exported.add_argument("--state", type=Path, required=True, help="layers.pt or train.pt")
    exported.add_argument("--out", type=Path, required=True)
    exported.add_argument("--type", choices=("q8_0", "f16"), default="q8_0")
    checked = commands.add_parser("check")
    checked.add_argument("--gguf", type=Path, required=True)
    checked.add_argument("--text", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    if args.model is None and args.command != "check":
        raise SystemExit("--model is needed")
    os.nice(19)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    if args.command in ("layers", "train"):
        Run(args, args.command).run()
    else:
        {"text": text, "export": export, "check": check}[args.command](args)


if __name__ == "__main__":
    main()
