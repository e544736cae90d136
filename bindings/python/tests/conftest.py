"""Models for the tests: synthesized with the program of $HEARTH, and the story model of this repository."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import hearth
import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = os.environ.get("HEARTH", str(ROOT / "build/release/bin/hearth"))


def run_hearth(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def synthesize(folder: Path, name: str, shape: dict[str, object], *more: str) -> Path:
    file = folder / f"{name}.json"
    file.write_text(json.dumps(shape))
    model = folder / f"{name}.gguf"
    done = run_hearth("synth", "--shape", str(file), "-o", str(model), *more)
    assert done.returncode == 0, done.stderr
    return model


@pytest.fixture(scope="session")
def dense_path(folder: Path) -> Path:
    """A SiLU model of 0.3 MB, without a chat template."""
    return synthesize(folder, "dense", {
        "hidden_size": 64, "intermediate_size": 192, "num_layers": 2, "num_heads": 2,
        "num_kv_heads": 1, "head_dim": 32, "vocab_size": 300, "context_length": 131072})


@pytest.fixture(scope="session")
def packed_path(folder: Path) -> Path:
    """As sparse as bamboo-7b, with predictors; 36 MiB of neurons, which need not be in memory."""
    return synthesize(folder, "packed", {
        "hidden_size": 512, "intermediate_size": 6144, "num_layers": 4, "num_heads": 8,
        "num_kv_heads": 2, "head_dim": 64, "vocab_size": 2000, "activation": "drelu"}, "--packed")


@pytest.fixture(scope="session")
def stories_path() -> Path:
    return ROOT / "models/hearth-stories-5m.gguf"


@pytest.fixture(scope="session")
def thinking_path(folder: Path, stories_path: Path) -> Path:
    """The story model with a template that opens a block of thoughts."""
    contents = stories_path.read_bytes()
    key = b"tokenizer.chat_template"
    start = contents.index(key) + len(key) + 4  # after the value's type
    length = int.from_bytes(contents[start:start + 8], "little")
    template = (b"{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                b"{% if enable_thinking is false %}No{% else %}<think>\n{% endif %}{# </think>")
    template = template.ljust(length - 2) + b"#}"  # of the same length, so that nothing moves
    assert len(template) == length
    path = folder / "thinking.gguf"
    path.write_bytes(contents[:start + 8] + template + contents[start + 8 + length:])
    return path


@pytest.fixture(scope="session")
def stories(stories_path: Path) -> Iterator[hearth.Model]:
    with hearth.Model(stories_path, threads=2) as model:
        yield model
