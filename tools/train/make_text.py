#!/usr/bin/env python3
"""Writes the training text: stories and chats of our grammar, and public-domain prose.

train.jsonl holds the text proper, practice.jsonl short scenes for the first part
of the training. Output is one JSON document per line: {"text": ...} for plain text and
{"messages": [...]} for a chat. Stories are named by their seed; the held-back
ones start at HELD_BACK_SEED, which training never reaches.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path

from story_grammar.chat import chat_turns
from story_grammar.compose import compose
from story_grammar.practice import scene

HELD_BACK_SEED = 1_000_000_000
HELD_BACK_PROSE_SHARE = 0.05
PROSE_CHUNK_CHARS = 1600  # about one context of 512 tokens


def unwrap(text: str) -> str:
    """Joins wrapped lines; an empty line ends a paragraph, which becomes one line."""
    paragraphs = re.split(r"\n\s*\n", text.replace("\r", ""))
    return "\n".join(" ".join(p.split()) for p in paragraphs if p.strip())


def split_prose(path: Path) -> tuple[str, str]:
    """(training part, held-back last part) of the unwrapped book."""
    text = unwrap(path.read_text(encoding="utf-8"))
    cut = text.rindex("\n", 0, int(len(text) * (1 - HELD_BACK_PROSE_SHARE)))
    return text[:cut], text[cut + 1:]


def prose_documents(text: str, rng: random.Random) -> list[dict]:
    """Runs of whole paragraphs, each about PROSE_CHUNK_CHARS long, in random order."""
    documents, run, length = [], [], 0
    for paragraph in text.split("\n"):
        run.append(paragraph)
        length += len(paragraph)
        if length >= PROSE_CHUNK_CHARS:
            documents.append({"text": "\n".join(run), "open": True})
            run, length = [], 0
    rng.shuffle(documents)
    return documents


def write_documents(path: Path, documents: list[dict]) -> None:
    """One JSON document per line."""
    with open(path, "w", encoding="utf-8") as file:
        for document in documents:
            file.write(json.dumps(document, ensure_ascii=False) + "\n")


def write_held_back(out: Path, prose: str, stories: int) -> None:
    """Evaluation text: one story per line group, separated by an empty line."""
    texts = [compose(HELD_BACK_SEED + i).text for i in range(stories)]
    (out / "heldback-stories.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    (out / "heldback-prose.txt").write_text(prose + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prose", type=Path, default=Path("../shared/data/text/war-and-peace.txt"))
    parser.add_argument("--out", type=Path, required=True, help="folder for train.jsonl and the held-back text")
    parser.add_argument("--stories", type=int, default=100_000, help="number of stories and chats")
    parser.add_argument("--chat-share", type=float, default=0.55)
    parser.add_argument("--prose-passes", type=int, default=3, help="how often the book appears")
    parser.add_argument("--practice-scenes", type=int, default=60_000, help="short scenes dense in names")
    parser.add_argument("--held-back-stories", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    rng = random.Random(args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    train_prose, held_back_prose = split_prose(args.prose)
    write_held_back(args.out, held_back_prose, args.held_back_stories)

    documents = []
    for seed in range(args.stories):
        if rng.random() < args.chat_share:
            documents.append({"messages": chat_turns(seed)})
        else:
            documents.append({"text": compose(seed).text})
    for _ in range(args.prose_passes):
        documents += prose_documents(train_prose, rng)
    rng.shuffle(documents)
    write_documents(args.out / "train.jsonl", documents)
    write_documents(args.out / "practice.jsonl", [{"text": scene(seed)} for seed in range(args.practice_scenes)])
    print(f"{len(documents)} documents and {args.practice_scenes} practice scenes written to {args.out}")


if __name__ == "__main__":
    main()
