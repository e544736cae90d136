#!/usr/bin/env python3
"""Makes the adapters of tests/goldens/adapters: tiny LoRA adapters as PEFT saves them, and the
logits that PEFT computes with them over the models of the golden cases of the same names.

Needs peft beside the packages of requirements.txt. The logits are float64 as those of
make_goldens.py are. Everything is drawn from seeds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model

from cases import CASES
from families import Case, make_tokens
from make_goldens import DEFAULT_OUT, golden_positions
from models import build_model
from reference import full_logits, relative_difference, to_float64

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
FFN = ["gate_proj", "up_proj", "down_proj"]
# What adapters must change the logits by at least: far more than the tolerance of the tests.
LEAST_CHANGE = 1e-2


@dataclass(frozen=True)
class Adapter:
    """An adapter of a golden case."""

    name: str
    case: str
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)


ADAPTERS = [
    # Heads of q and k lie in another order in GGUF; scales differ from module to module.
    Adapter("llama-a", "llama", 901, {
        "r": 4, "lora_alpha": 6, "use_rslora": True, "target_modules": ATTENTION + FFN,
        "rank_pattern": {"k_proj": 3, "model.layers.1.self_attn.q_proj": 2},
        "alpha_pattern": {"down_proj": 10, "layers.2.mlp.up_proj": 3}}),
    Adapter("llama-b", "llama", 902,
            {"r": 2, "lora_alpha": 5, "target_modules": ["q_proj", "down_proj"],
             "layers_to_transform": [0, 2]}),
    # Norms of heads, and norms after blocks.
    Adapter("gemma3-a", "gemma3", 903,
            {"r": 3, "lora_alpha": 4, "target_modules": ATTENTION + FFN}),
    # Fused matrices.
    Adapter("phi3-a", "phi3", 904,
            {"r": 3, "lora_alpha": 4,
             "target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}),
    # Matrices that lie transposed.
    Adapter("gpt2-a", "gpt2", 905,
            {"r": 2, "lora_alpha": 4, "fan_in_fan_out": True,
             "target_modules": ["c_attn", "c_proj", "c_fc"]}),
    # The FFN beside the experts.
    Adapter("qwen2moe-a", "qwen2moe", 906,
            {"r": 2, "lora_alpha": 4, "target_modules":
             r".*(q_proj|v_proj|shared_expert\.(gate_proj|up_proj|down_proj))"}),
]
# Computed with several at once, all with weight 1.
TOGETHER = {"llama-ab": ["llama-a", "llama-b"]}


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def draw(model: torch.nn.Module, adapter: Adapter) -> None:
    """Both matrices of every module, so that neither is zero."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" not in name or f".{adapter.name}." not in name:
                continue
            rng = np.random.default_rng([adapter.seed, *name.encode()])
            half_width = 0.25 / np.sqrt(parameter.shape[-1])
            values = rng.uniform(-half_width, half_width, tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(values.astype(np.float32)))


def logits_of(case: Case, model: torch.nn.Module) -> np.ndarray:
    prompt, decode = make_tokens(case)
    return full_logits(model, prompt + decode)[golden_positions(case)]


def with_adapters(adapters: list[Adapter], folder: Path | None) -> np.ndarray:
    """Logits with these adapters active; `folder`: where the first one is saved."""
    case = case_of(adapters[0].case)
    base = build_model(case)
    model = None
    for adapter in adapters:
        config = LoraConfig(task_type="CAUSAL_LM", inference_mode=True, lora_dropout=0.0,
                            **adapter.settings)
        if model is None:
            model = get_peft_model(base, config, adapter_name=adapter.name)
        else:
            model.add_adapter(adapter.name, config)
        draw(model, adapter)
    if folder is not None:
        save(model, adapters[0], folder)
    model.base_model.set_adapter([adapter.name for adapter in adapters])
    to_float64(model.base_model.model)
    return logits_of(case, model.base_model.model)


def save(model: Any, adapter: Adapter, folder: Path) -> None:
    """What PEFT writes, without its model card and with sorted settings."""
    with tempfile.TemporaryDirectory() as temporary:
        model.save_pretrained(temporary)
        saved = Path(temporary) / adapter.name
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(saved / "adapter_model.safetensors", folder)
        settings = json.loads((saved / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = adapter.case
    if isinstance(settings.get("target_modules"), list):
        settings["target_modules"].sort()
    text = json.dumps(settings, indent=1, sort_keys=True)
    (folder / "adapter_config.json").write_text(text + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT / "adapters")
    out = parser.parse_args().out
    by_name = {adapter.name: adapter for adapter in ADAPTERS}
    for name, names in [*((a.name, [a.name]) for a in ADAPTERS), *TOGETHER.items()]:
        adapters = [by_name[each] for each in names]
        case = case_of(adapters[0].case)
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        logits = with_adapters(adapters, folder if len(names) == 1 else None)
        base = logits_of(case, to_float64(build_model(case)))
        change = relative_difference(base, logits)
        if not change > LEAST_CHANGE:
            raise RuntimeError(f"{name} changes the logits by {change:.1e} only")
        logits.astype(np.float32).tofile(folder / "logits.f32")
        print(f"{name}: changes the logits of {case.name} by {change:.2f}")


if __name__ == "__main__":
    main()
