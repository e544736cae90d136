#!/usr/bin/env python3
"""Writes a Hugging Face folder as GGUF with the public converter of llama.cpp.

One step of the converter is replaced: it knows vocabularies by their hashes and
refuses others, so the pieces of gguf_out.py take the place of what it would
read. Everything else in the file is as it writes it.

    convert.py SOURCE FOLDER OUT.gguf

SOURCE is an unpacked source package of llama-cpp-python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torch import nn

CONVERTER = "vendor/llama.cpp"


def write_converted(model: nn.Module, name: str, source: Path, path: Path) -> None:
    """Saves the model as a folder and has it converted, in a process of its own:
    the converter brings a gguf package of its own version."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / name  # it goes into general.name
        model.save_pretrained(folder)
        # Where a family has vocabularies of two kinds this one is looked at and counted.
        tokens = {str(i): i for i in range(model.config.vocab_size)}
        (folder / "tokenizer.json").write_text(json.dumps(
            {"model": {"type": "BPE", "vocab": tokens, "merges": []}, "added_tokens": []}))
        subprocess.run([sys.executable, __file__, source, folder, path], check=True)


def main() -> None:
    source, folder, out = sys.argv[1:]
    root = Path(source) / CONVERTER
    sys.path[:0] = [str(root / "gguf-py"), str(root)]
    os.environ["NO_LOCAL_GGUF"] = "1"  # the line above has done it
    import convert_hf_to_gguf as converter

    from gguf_out import add_tokenizer

    find_class = converter.get_model_class

    def with_our_vocabulary(*args: Any, **kwargs: Any) -> Any:
        model_class = find_class(*args, **kwargs)
        model_class.set_vocab = lambda self: add_tokenizer(self.gguf_writer)
        return model_class

    converter.get_model_class = with_our_vocabulary
    sys.argv = [sys.argv[0], folder, "--outfile", out, "--outtype", "f32"]
    converter.main()


if __name__ == "__main__":
    main()
