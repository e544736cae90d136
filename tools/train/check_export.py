#!/usr/bin/env python3
"""Checks an exported GGUF against training: same token ids, same logits up to F16 rounding."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from model import ModelConfig, StoryModel
from reference import ReferenceModel
from vocabulary import Vocabulary

# F16 keeps 11 bits; five layers of them stay well below this on logits of size 10.
LOGIT_TOLERANCE = 0.1

ODD_TEXTS = (
    "", " ", "  two  spaces ", "a\nb\n\nc", "\n", "na\u00efve caf\u00e9 \u2014 \u4e16\u754c \U0001f98a",
    "tabs\tand 12345 digits", "\"Quoted,\" said Tam.", "<s> is only text here", "xqzjv" * 20,
)


def check_tokens(model: ReferenceModel, vocabulary: Vocabulary, texts: list[str]) -> int:
    """Compares both encoders with and without the leading space, and the way back."""
    for text in texts:
        for prefix in (True, False):
            if model.tokenizer.encode(text, prefix) != vocabulary.encode(text, prefix):
                raise SystemExit(f"token ids differ for {text[:80]!r} (space prefix {prefix})")
        decoded = model.tokenizer.decode(model.tokenizer.encode(text))
        if decoded != text:
            raise SystemExit(f"text does not come back: {text[:80]!r} became {decoded[:80]!r}")
    return len(texts)


def logit_difference(model: ReferenceModel, checkpoint: Path, ids: list[int]) -> float:
    """Largest difference between the checkpoint in F32 and the file in F16."""
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    trained = StoryModel(ModelConfig(**state["config"]))
    trained.load_state_dict(state["model"])
    with torch.no_grad():
        expected = trained(torch.tensor([ids]))[0][0].numpy()
    return float(np.abs(expected - model.logits(ids, model.new_cache())).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="GGUF file")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--held-back", type=Path, required=True)
    args = parser.parse_args()

    model, vocabulary = ReferenceModel(args.model), Vocabulary(args.tokenizer)
    stories = (args.held_back / "heldback-stories.txt").read_text(encoding="utf-8").strip().split("\n\n")
    prose = (args.held_back / "heldback-prose.txt").read_text(encoding="utf-8").split("\n")
    texts = list(ODD_TEXTS) + stories + prose
    print(f"token ids agree on {check_tokens(model, vocabulary, texts)} texts")
    ids = [model.tokenizer.bos] + model.tokenizer.encode(stories[0])
    difference = logit_difference(model, args.checkpoint, ids[: model.context_length])
    print(f"largest logit difference {difference:.5f}")
    if difference > LOGIT_TOLERANCE:
        raise SystemExit("the exported file computes something else than the checkpoint")


if __name__ == "__main__":
    main()
