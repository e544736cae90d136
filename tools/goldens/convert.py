#!/usr/bin/env python3
"""Writes a Hugging Face folder as GGUF with the public converter of llama.cpp.

One step of the converter is replaced: it knows vocabularies by their hashes and
refuses others, so the pieces of gguf_out.py take the place of what it would
read. Everything else in the file is as it writes it.

    convert.py SOURCE FOLDER OUT.gguf TYPE

SOURCE is an unpacked source package of llama-cpp-python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from torch import nn

CONVERTER = "vendor/llama.cpp"


def save_folder(model: nn.Module, folder: Path) -> None:
    """Saves the model as Hugging Face publishes it, with the vocabulary of gguf_out.py."""
    from gguf_out import tokenizer_json  # not above: the converter wants its own gguf package

    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))


def convert_folder(folder: Path, source: Path, path: Path, out_type: str = "f32") -> None:
    """Has a folder converted, in a process of its own: the converter brings a gguf package of its
    own version."""
    subprocess.run([sys.executable, __file__, source, folder, path, out_type], check=True)


def all_subclasses(base: type) -> list[type]:
    return [each for one in base.__subclasses__() for each in [one, *all_subclasses(one)]]


def main() -> None:
    source, folder, out, out_type = sys.argv[1:]
    root = Path(source) / CONVERTER
    sys.path[:0] = [str(root / "gguf-py"), str(root)]
    os.environ["NO_LOCAL_GGUF"] = "1"  # the line above has done it
    import convert_hf_to_gguf as converter

    from gguf_out import add_tokenizer

    find_class = converter.get_model_class

    def with_our_vocabulary(*args: Any, **kwargs: Any) -> Any:
        model_class = find_class(*args, **kwargs)
        # Some classes let another one write.
        for written in [model_class, *all_subclasses(converter.ModelBase)]:
            if "set_vocab" in vars(written):
                written.set_vocab = lambda self: add_tokenizer(self.gguf_writer)
        model_class.set_vocab = lambda self: add_tokenizer(self.gguf_writer)
        return model_class

    converter.get_model_class = with_our_vocabulary
    sys.argv = [sys.argv[0], folder, "--outfile", out, "--outtype", out_type]
    converter.main()


if __name__ == "__main__":
    main()
