#!/usr/bin/env python3
"""Measures on real weights what the papers rest on, for docs/real_weights.md.

  real_weights.py FOLDER --machine zen5 [--smollm2 FILE] [--gemma FILE] [--only EXPERIMENT,...]
  real_weights.py FOLDER --machine zen5 --smollm2 FILE --relu FILE [--about TEXT] [--only EXPERIMENT,...]

Runs `hearth` over texts and questions of HEARTH_SHARED (default ../shared) and writes
bench/results/MACHINE/real-*.json; then run make_tables.py. With --relu it measures only a model that
tools/train/relufy.py made, beside the one that it was made of. What a command printed is kept in FOLDER,
so that a run that was stopped goes on where it was; --seconds stops it so. All figures are of accuracy,
none of speed: a busy machine changes none. Exit status: 0 done, 1 not so.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from results import RESULTS, ROOT, BadResult, as_text, check_result
from store_result import checked_out

Row = list[Any]
COSTS = ("0.5", "1", "5")  # percent of perplexity
TOP = 0.2  # P1 compares the fifth of the neurons that are most often active
CAPACITIES = range(10, 100, 10)
TRACE_TOKENS = 512
QUESTIONS = 120
MODES = "dense,gated,predicted"
OF_MODES = ("real-relu", "real-relu-tasks")  # have a row for each
RELU = "SmolLM2-135M-ReLU"
TASKS = {"PIQA": "piqa", "ARC easy": "arc_easy", "WinoGrande": "winogrande", "LAMBADA": "lambada"}
RELU_TASKS = {"PIQA": "piqa", "ARC easy": "arc_easy", "ARC challenge": "arc_challenge",
              "WinoGrande": "winogrande", "HellaSwag": "hellaswag", "LAMBADA": "lambada"}
# Of these the accuracy by character is quoted.
BY_CHARACTER = {"PIQA", "ARC easy", "ARC challenge", "HellaSwag"}
# More layers than these do not name their predictors' ranks one by one.
NAMED_RANKS = 8
STORIES = ROOT / "models/hearth-stories.txt"  # held back from the embedded model's training
# Of each text, from where on and how many bytes. Thresholds are learned from the first.
PIECES = {"WikiText": ("wikitext2-valid.txt", 0, 30_000),
          "WikiText, unseen": ("wikitext2-valid.txt", 1_000_000, 24_000),
          "War and Peace": ("war-and-peace.txt", 1_000_000, 24_000),
          "Shakespeare": ("tinyshakespeare.txt", 500_000, 24_000),
          "stories": (STORIES, 0, 24_000),
          "stories, unseen": (STORIES, 7_500, 24_000)}
# Predictors: how many bytes from the beginning of each.
LEARNED = ((STORIES, 7_500), ("war-and-peace.txt", 60_000))
TEXTS = ("WikiText, unseen", "War and Peace", "Shakespeare")


@dataclass
class Model:
    name: str
    path: Path
    activation: str
    texts: tuple[str, ...]  # the first is compared with the others
    unseen: tuple[str, ...]  # by training and by predictors
    predictor: str = "auto"  # as `pack --predictor` takes it

    @property
    def has_zeros(self) -> bool:
        """False where every neuron of a token adds something."""
        return self.activation in ("relu", "drelu")


class Bench:
    def __init__(self, folder: Path, hearth: Path, seconds: float, modes: str):
        self.folder, self.hearth = folder, hearth
        self.modes = modes.split(",")  # of the ReLU model
        self.end = time.monotonic() + seconds
        self.shared = Path(os.environ.get("HEARTH_SHARED", ROOT.parent / "shared")) / "data"
        folder.mkdir(parents=True, exist_ok=True)

    def read(self, file: str | Path, first: int, size: int) -> str:
        data = (self.shared / "text" / file).read_bytes()[first:first + size]
        return data.decode("utf-8", errors="ignore")

    def text(self, name: str) -> Path:
        path = self.folder / (name.lower().replace(", ", "-").replace(" ", "-") + ".txt")
        if not path.exists():
            path.write_text(self.read(*PIECES[name]))
        return path

    def run(self, name: str, *arguments: object) -> dict[str, Any]:
        """The JSON document that `hearth ARGUMENTS --json` printed, now or in an earlier run."""
        path = self.folder / f"{name}.json"
        if not path.exists():
            if time.monotonic() > self.end:
                raise BadResult("the time is over: the same command goes on")
            command = [str(self.hearth), *map(str, arguments), "--json"]
            print(" ".join(command), flush=True)
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode != 0:
                raise BadResult(f"{name}: exit status {done.returncode}.")
            path.write_text(done.stdout)
        document: dict[str, Any] = json.loads(path.read_text())
        return document

    def thresholded(self, model: Model, cost: str) -> tuple[Path, dict[str, Any]]:
        """A packed file that leaves out the quietest neurons. In Q8_0, so that packing adds nothing."""
        packed = self.folder / f"{model.name}-{cost}.gguf"
        report = self.run(f"{model.name}-{cost}-pack", "pack", model.path, "-o", packed, "--text",
                          self.text("WikiText"), "--silu-threshold", f"{cost}%", "--quant", "q8_0",
                          "--mode", "gated", "--force")
        return packed, report

    def profiled(self, model: Model, path: Path, kind: str, text: str) -> tuple[Path, dict[str, Any]]:
        stem = f"{model.name}-{kind}-{self.text(text).stem}-profile"
        profile = self.folder / f"{stem}.bin"
        extra: list[object] = ["--plot", self.folder / f"{stem}.svg"]
        if kind == "dense" and not model.has_zeros:
            return profile, self.run(stem, "profile", path, "--text", self.text(text), "--ctx", 512,
                                     "-o", profile, *extra)
        trace = self.folder / f"{stem}.trace"
        return profile, self.run(stem, "profile", path, "--text", self.text(text), "--ctx", 512,
                                 "-o", profile, "--restart", "--trace", trace, "--trace-tokens",
                                 TRACE_TOKENS, *extra)

    def packed(self, model: Model) -> Path:
        """A packed file with predictors."""
        packed = self.folder / f"{model.name}-packed.gguf"
        learned = self.folder / "learned.txt"
        learned.write_text("".join(self.read(file, 0, size) for file, size in LEARNED))
        self.run(f"{model.name}-pack", "pack", model.path, "-o", packed, "--text", learned, "--mode",
                 "predicted", "--predictor", model.predictor, "--force")
        return packed

    def bundled(self, model: Model) -> Path:
        """A packed file without predictors."""
        bundled = self.folder / f"{model.name}-bundled.gguf"
        self.run(f"{model.name}-bundle", "pack", model.path, "-o", bundled, "--mode", "gated", "--force")
        return bundled

    def evaluated(self, name: str, path: Path, text: str, *more: object) -> dict[str, Any]:
        """What `hearth eval` says of a text."""
        return self.run(f"{name}-{self.text(text).stem}-eval", "eval", path, "--text", self.text(text),
                        "--ctx", 512, *more)

    def answered(self, name: str, path: Path, file: str, *more: object) -> dict[str, Any]:
        """What `hearth eval` says of questions."""
        return self.run(f"{name}-{file}", "eval", path, "--task", self.shared / f"eval/{file}.jsonl",
                        "--questions", QUESTIONS, *more)

    def versions(self, model: Model) -> list[tuple[str, Path]]:
        """The model as it is, and with thresholds."""
        dense = [("dense", model.path)]
        if model.activation != "silu":
            return dense
        return dense + [(f"{cost}%", self.thresholded(model, cost)[0]) for cost in COSTS]

    def all_versions(self, models: list[Model]) -> Iterator[tuple[Model, str, Path]]:
        for model in models:
            for kind, path in self.versions(model):
                yield model, kind, path


def version(kind: str) -> str:
    return "as it is" if kind == "dense" else f"thresholds at {kind}"


def percent(share: float) -> float:
    return round(100 * share, 2)


def read_profile(path: Path) -> tuple[list[float], list[float]]:
    """Of every neuron how often it was active, and how much of the output it carried
    (docs/formats/profile.md)."""
    data = path.read_bytes()
    name_bytes = struct.unpack_from("<I", data, 12)[0]
    layers, experts, neurons = struct.unpack_from("<QQQ", data, 56)
    at = 96 + name_bytes
    active: list[float] = []
    output: list[float] = []
    for _ in range(layers * max(experts, 1)):
        counts = struct.unpack_from(f"<{neurons}Q", data, at + 8 + 8 * neurons)
        mass = struct.unpack_from(f"<{neurons}d", data, at + 8 + 16 * neurons)
        norms = struct.unpack_from(f"<{neurons}f", data, at + 8 + 24 * neurons)
        active += map(float, counts)
        output += [m * n for m, n in zip(mass, norms)]
        at += 8 + 28 * neurons
    return active, output


def top(weights: list[float], share: float) -> set[int]:
    order = sorted(range(len(weights)), key=lambda i: -weights[i])
    return set(order[:round(share * len(order))])


def silence(bench: Bench, models: list[Model]) -> list[Row]:
    """How many neurons a cost in perplexity silences, and what it costs on a text not seen."""
    rows = []
    for model in models:
        if model.activation != "silu":
            continue
        unseen = bench.text("WikiText, unseen")
        dense = bench.run(f"{model.name}-dense-eval", "eval", model.path, "--text", unseen, "--ctx", 512)
        for cost in COSTS:
            packed, report = bench.thresholded(model, cost)
            silu = report["silu"]
            after = bench.run(f"{model.name}-{cost}-eval", "eval", packed, "--text", unseen, "--ctx", 512)
            rows.append([model.name, float(cost), percent(1 - silu["active"]),
                         percent(silu["perplexity_after"] / silu["perplexity_before"] - 1),
                         dense["perplexity"], after["perplexity"],
                         percent(after["perplexity"] / dense["perplexity"] - 1)])
    return rows


def activation(bench: Bench, models: list[Model]) -> list[Row]:
    """P1 Figure 4, P2 §4.3: how many neurons carry 80% of the activations, and what follows a gate."""
    rows = []
    for model, kind, path in bench.all_versions(models):
        for text in model.texts:
            _, document = bench.profiled(model, path, kind, text)
            figures = document["all"]
            layers = [layer["hot_activations"] for layer in document["layers"]]
            row: Row = [model.name, version(kind), text]
            if document["goes_sparse"]:
                row += [percent(figures["active"]), percent(figures["hot_activations"]),
                        {"min": percent(min(layers)), "max": percent(max(layers))},
                        percent(figures["hot_output"]), percent(figures["co_active"]),
                        percent(figures["co_active_cold"])]
            else:
                row += [None, None, None, percent(figures["hot_output"]), None, None]
            rows.append(row)
    return rows


def overlap(bench: Bench, models: list[Model]) -> list[Row]:
    """P1 Figure 5b: whether the same neurons are hot in other texts."""
    rows = []
    for model, kind, path in bench.all_versions(models):
        profiles = [read_profile(bench.profiled(model, path, kind, text)[0]) for text in model.texts]
        for other in range(1, len(model.texts)):
            row: Row = [model.name, version(kind), f"{model.texts[0]}, {model.texts[other]}"]
            for which in (0, 1):
                if which == 0 and kind == "dense" and not model.has_zeros:
                    row.append(None)
                    continue
                one, two = (top(profiles[i][which], TOP) for i in (0, other))
                row.append(percent(len(one & two) / len(one)))
            rows.append(row)
    return rows


def cache(bench: Bench, models: list[Model]) -> list[Row]:
    """What caches of 10 to 90% of the neurons find."""
    rows = []
    for model, kind, path in bench.all_versions(models):
        if kind == "dense" and not model.has_zeros:
            continue
        text = model.texts[0]
        trace = bench.profiled(model, path, kind, text)[0].with_suffix(".trace")
        document = bench.run(f"{model.name}-{kind}-replay", "bench", "--trace", trace, "--policy",
                             "lru,layer-lfu", "--capacity",
                             ",".join(f"{capacity}%" for capacity in CAPACITIES))
        points = document["points"]
        for index, name in enumerate(("lru", "layer-lfu")):
            rows.append([model.name, version(kind), name,
                         *(percent(point["policies"][index]["hit_rate"]) for point in points)])
        rows.append([model.name, version(kind), "Bélády",
                     *(percent(point["belady_hit_rate"]) for point in points)])
    return rows


def predictors(bench: Bench, models: list[Model]) -> list[Row]:
    """Rank, size and quality of the predictors that `pack --text` makes; only of models with zeros."""
    rows: list[Row] = []
    for model in models:
        if not model.has_zeros:
            continue
        packed = bench.packed(model)
        made = bench.run(f"{model.name}-inspect", "inspect", packed)["packing"]["predictors"]
        ranks = made["ranks"]
        named = (", ".join(map(str, ranks)) if len(ranks) <= NAMED_RANKS
                 else f"{min(ranks)} to {max(ranks)}")
        for text in model.unseen:
            dense, predicted = (bench.evaluated(f"{model.name}-{mode}", packed, text, "--mode", mode)
                                for mode in ("dense", "predicted"))
            quality = predicted["quality"]
            rows.append([model.name, text, named, round(made["bytes"] / 2**10),
                         percent(made["share_of_file"]), percent(quality["listed"]),
                         percent(quality["recall"]), percent(quality["precision"]),
                         percent(predicted["perplexity"] / dense["perplexity"] - 1)])
    return rows


def tasks(bench: Bench, models: list[Model]) -> list[Row]:
    """Answers to questions, dense and with thresholds."""
    rows = []
    for model in models:
        if model.activation != "silu":
            continue
        for kind, path in bench.versions(model):
            row: Row = [model.name, version(kind)]
            for name, file in TASKS.items():
                row.append(accuracy(bench.answered(f"{model.name}-{kind}", path, file), name))
            rows.append(row)
    return rows


def accuracy(document: dict[str, Any], task: str) -> float:
    return percent(document["accuracy_by_character" if task in BY_CHARACTER else "accuracy"]["share"])


def relu_versions(bench: Bench, models: list[Model]) -> list[tuple[str, str, Path, tuple[str, str]]]:
    """(name in the table, name of files, model, options): what the ReLU model was made of, and its modes."""
    relu, *others = models
    versions = []
    for model in others:
        versions += [(f"{model.name}, SiLU", f"{model.name}-dense", model.path, ("--mode", "dense")),
                     (f"{model.name}, SiLU merely exchanged", f"{model.name}-exchanged", model.path,
                      ("--activation", relu.activation))]
    for mode in bench.modes:
        path = {"dense": lambda _: relu.path, "gated": bench.bundled, "predicted": bench.packed}[mode](relu)
        versions.append((f"{relu.name}, {mode}", f"{relu.name}-{mode}", path, ("--mode", mode)))
    return versions


def relu_perplexity(bench: Bench, models: list[Model]) -> list[Row]:
    """What another activation costs, before and after training, and what modes cost beyond that."""
    rows: list[Row] = []
    for shown, name, path, options in relu_versions(bench, models):
        documents = [bench.evaluated(name, path, text, *options) for text in TEXTS]
        computed = [document["quality"]["computed"] for document in documents]
        rows.append([shown, *(document["perplexity"] for document in documents),
                     percent(sum(computed) / len(computed))])
    return rows


def relu_layers(bench: Bench, models: list[Model]) -> list[Row]:
    """How sparse every layer is."""
    relu = models[0]
    documents = [bench.profiled(relu, relu.path, "dense", text)[1]["layers"] for text in TEXTS]
    return [[f"{index + 1}", *(percent(layer["active"]) for layer in layers),
             *(percent(layer["hot_activations"]) for layer in layers)]
            for index, layers in enumerate(zip(*documents))]


def relu_tasks(bench: Bench, models: list[Model]) -> list[Row]:
    """P1 Table 7's question: whether answers suffer."""
    return [[shown, *(accuracy(bench.answered(name, path, file, *options), task)
                      for task, file in RELU_TASKS.items())]
            for shown, name, path, options in relu_versions(bench, models) if "--activation" not in options]


def share(name: str, digits: int = 1) -> dict[str, Any]:
    return {"name": name, "unit": "%", "digits": digits}


def word(name: str) -> dict[str, Any]:
    return {"name": name, "unit": ""}


EXPERIMENTS = {
    "real-silence": (silence, [word("model"), share("allowed"), share("silent"), share("cost where learned", 2),
                               {"name": "perplexity, unseen", "unit": "", "digits": 3},
                               {"name": "thresholded", "unit": "", "digits": 3}, share("cost, unseen", 2)]),
    "real-activation": (activation, [word("model"), word("version"), word("text"), share("active"),
                                     share("80% of activations in"), share("layers, least to most"),
                                     share("80% of output in"), share("gates whose up and down follow"),
                                     share("the same, cold")]),
    "real-overlap": (overlap, [word("model"), word("version"), word("texts"), share("same, by activations"),
                               share("same, by output")]),
    "real-cache": (cache, [word("model"), word("version"), word("policy"),
                           *({"name": f"{capacity}%", "unit": "", "digits": 1} for capacity in CAPACITIES)]),
    "real-predictors": (predictors, [word("model"), word("text"), word("ranks"),
                                     {"name": "size", "unit": "KiB"}, share("of the file"),
                                     share("listed"), share("recall", 2), share("precision"),
                                     share("cost in perplexity", 2)]),
    "real-tasks": (tasks, [word("model"), word("version"), *(share(name) for name in TASKS)]),
}
RELU_EXPERIMENTS = {
    **{name: EXPERIMENTS[name] for name in ("real-activation", "real-overlap", "real-cache",
                                            "real-predictors")},
    "real-relu": (relu_perplexity, [word("model"), *({"name": text, "unit": "", "digits": 2}
                                                     for text in TEXTS), share("computed")]),
    "real-relu-layers": (relu_layers, [word("layer"), *(share(f"active, {text}") for text in TEXTS),
                                       *(share(f"80% in, {text}") for text in TEXTS)]),
    "real-relu-tasks": (relu_tasks, [word("model"), *(share(name) for name in RELU_TASKS)]),
}


def models_of(args: argparse.Namespace, bench: Bench) -> list[Model]:
    models = []
    if args.relu:
        activation = bench.run(f"{RELU}-inspect-source", "inspect", args.relu)["model"]["ffn_activation"]
        # Training would take minutes for each of 30 layers.
        models.append(Model(RELU, args.relu, activation, TEXTS, TEXTS, "computed"))
    if args.smollm2:
        models.append(Model("SmolLM2-135M", args.smollm2, "silu", TEXTS, TEXTS))
    if args.relu:
        return models
    if args.gemma:
        models.append(Model("Gemma-3-270M", args.gemma, "gelu", TEXTS, TEXTS))
    models.append(Model("hearth-stories-5m", ROOT / "models/hearth-stories-5m.gguf", "drelu",
                        ("stories", "War and Peace", "WikiText, unseen"),
                        ("stories, unseen", "War and Peace", "WikiText, unseen")))
    return models


def experiments_of(args: argparse.Namespace) -> dict[str, Any]:
    return RELU_EXPERIMENTS if args.relu else EXPERIMENTS


def document_of(args: argparse.Namespace, name: str, rows: list[Row], command: str) -> dict[str, Any]:
    note = args.about if args.relu else "hearth-stories-5m is the embedded model."
    if "tasks" in name:
        said = [task for task in (RELU_TASKS if args.relu else TASKS) if task in BY_CHARACTER]
        note = (f"The first {QUESTIONS} questions of each; a standard error is 3 to 5 points. "
                f"{', '.join(said[:-1])} and {said[-1]} by character.")
    return {"schema": 1, "machine": args.machine, "experiment": name, "date": args.date,
            "commit": args.commit or checked_out(), "commands": [command], "model": None,
            "weights": "real", "baseline": None, "repetitions": 1, "note": note,
            "columns": experiments_of(args)[name][1], "rows": rows}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--machine", required=True, help="a folder of bench/results")
    parser.add_argument("--smollm2", type=Path, help="SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--gemma", type=Path, help="gemma-3-270m-q4_k_m.gguf")
    parser.add_argument("--relu", type=Path, help="what tools/train/relufy.py made of SmolLM2")
    parser.add_argument("--about", default="", help="how the ReLU model was trained, for the tables")
    parser.add_argument("--modes", default=MODES, help="in which the ReLU model is run")
    parser.add_argument("--only", help="experiments, by commas (all)")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no command after that")
    parser.add_argument("--hearth", type=Path, default=ROOT / "build/release/bin/hearth")
    parser.add_argument("--date", default=date.today().isoformat())
    parser.add_argument("--commit", help="of the build, if not of this checkout")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    bench = Bench(args.folder, args.hearth, args.seconds, args.modes)
    experiments = experiments_of(args)
    variant, options = (".relu", " --smollm2 FILE --relu FILE") if args.relu else ("", "")
    try:
        models = models_of(args, bench)
        for name in args.only.split(",") if args.only else experiments:
            modes = f" --modes {args.modes}" if name in OF_MODES and args.modes != MODES else ""
            command = f"bench/real_weights.py FOLDER{options}{modes} --only {name}"
            # Where there is a table of other models already, the ReLU model alone is added to it.
            measured = models if name.startswith("real-relu") or not args.relu else models[:1]
            document = document_of(args, name, experiments[name][0](bench, measured), command)
            check_result(document)
            file = name if name.startswith("real-relu") else f"{name}{variant}"
            (RESULTS / args.machine / f"{file}.json").write_text(as_text(document))
    except (BadResult, OSError) as error:
        print(f"real_weights.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
