#!/usr/bin/env python3
"""Trains the byte-fallback BPE tokenizer and packs the text into token ids.

Writes tokenizer.model (SentencePiece), train.bin and practice.bin (uint16 ids,
documents back to back) into the folder that make_text.py filled.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import numpy as np
import sentencepiece

from vocabulary import Vocabulary

CHAT_CONTROL_TOKENS = 2


def sample_lines(jsonl: Path, documents: int) -> list[str]:
    """Lines of the first documents (they are shuffled already)."""
    lines: list[str] = []
    with open(jsonl, encoding="utf-8") as file:
        for _, row in zip(range(documents), file):
            document = json.loads(row)
            texts = [document["text"]] if "text" in document else [m["content"] for m in document["messages"]]
            lines += [line for text in texts for line in text.split("\n") if line]
    return lines


def train(lines: list[str], model_path: Path, vocab_size: int) -> None:
    """Fixed-size BPE: no normalization, so that a plain Llama-style encoder agrees."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(model_path.with_suffix("")),
        model_type="bpe", vocab_size=vocab_size - CHAT_CONTROL_TOKENS, byte_fallback=True,
        character_coverage=0.9999, add_dummy_prefix=True, remove_extra_whitespaces=False,
        normalization_rule_name="identity", split_digits=True, allow_whitespace_only_pieces=False,
        max_sentence_length=20000, unk_id=0, bos_id=1, eos_id=2, pad_id=-1, num_threads=2, minloglevel=1,
    )


def pack(jsonl: Path, vocabulary: Vocabulary, out: Path, seed: int) -> int:
    """Appends every document's ids; returns the number of tokens."""
    rng = random.Random(seed)
    total = 0
    with open(jsonl, encoding="utf-8") as source, open(out, "wb") as target:
        for row in source:
            document = json.loads(row)
            if "messages" in document:
                ids = vocabulary.encode_chat(document["messages"], space_prefix=rng.random() < 0.6)
            else:
                ids = vocabulary.encode_plain(document["text"], closed=not document.get("open", False))
            np.asarray(ids, dtype=np.uint16).tofile(target)
            total += len(ids)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.jsonl")
    parser.add_argument("--vocab-size", type=int, default=2048)
    parser.add_argument("--sample-documents", type=int, default=12_000, help="documents the tokenizer is trained on")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    model_path = args.data / "tokenizer.model"
    train(sample_lines(args.data / "train.jsonl", args.sample_documents), model_path, args.vocab_size)
    vocabulary = Vocabulary(model_path)
    for name in ("train", "practice"):
        tokens = pack(args.data / f"{name}.jsonl", vocabulary, args.data / f"{name}.bin", args.seed)
        print(f"{name}.bin: {tokens} tokens")


if __name__ == "__main__":
    main()
