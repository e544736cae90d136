#!/usr/bin/env python3
"""Compares, token by token of texts, which next token Hearth and llama.cpp find likeliest.

Both are given the text itself whatever they would have said (teacher forcing), so
that one difference does not lead to others. Then both write on greedily from the
beginning of each text. llama.cpp runs inside this process through PyPI's
llama-cpp-python; Hearth as its server.

  compare_next_tokens.py MODEL.gguf TEXT [TEXT ...]   48 tokens of each file

Exit status: 0 enough agree (--least, --least-greedy), 1 too few, 2 could not run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from engines import DEFAULT_HEARTH, CannotRun, import_llama_cpp


class Hearth:
    """`hearth serve` on a port of the system's choice, while a `with` block lasts."""

    def __init__(self, program: Path, model: Path):
        self._process = subprocess.Popen(
            [program, "serve", model, "--port", "0", "--kv", "f32", "--ctx", "512",
             "--session-dir", "none"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._url = self._read_address()

    def _read_address(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            for word in line.split():
                if word.startswith("http://"):
                    return word.rstrip(".,")
        raise CannotRun("hearth serve did not say where it listens")

    def complete(self, **request: Any) -> dict[str, Any]:
        body = json.dumps({"temperature": 0} | request).encode()
        with urllib.request.urlopen(urllib.request.Request(
                self._url + "/v1/completions", body,
                {"Content-Type": "application/json"})) as answer:
            return json.load(answer)["choices"][0]

    def __enter__(self) -> Hearth:
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.terminate()
        self._process.wait()


def likeliest_of_hearth(hearth: Hearth, tokens: list[int]) -> list[str]:
    """The likeliest token, as text, after every token but the last."""
    scored = hearth.complete(prompt=tokens, max_tokens=0, echo=True, logprobs=1)["logprobs"]
    return [max(top, key=top.get) for top in scored["top_logprobs"][1:]]


def likeliest_of_llama(llama: Any, tokens: list[int]) -> list[str]:
    llama.reset()
    llama.eval(tokens)
    ids = np.argmax(llama.scores[: len(tokens) - 1], axis=1)
    return [llama.detokenize([int(i)], prev_tokens=tokens[:1]).decode(errors="replace")
            for i in ids]


def greedy_of_llama(llama: Any, tokens: list[int], count: int) -> str:
    return llama.create_completion(tokens, max_tokens=count, temperature=0.0,
                                   repeat_penalty=1.0)["choices"][0]["text"]


def compare(args: argparse.Namespace) -> dict[str, Any]:
    llama = import_llama_cpp().Llama(str(args.model), n_ctx=512, n_batch=512, logits_all=True,
                                     type_k=0, type_v=0, verbose=False)
    rows = []
    with Hearth(args.hearth, args.model) as hearth:
        for path in args.texts:
            tokens = llama.tokenize(path.read_bytes(), add_bos=True, special=False)[: args.tokens]
            ours = likeliest_of_hearth(hearth, tokens)
            theirs = likeliest_of_llama(llama, tokens)
            start = tokens[: args.tokens // 2]
            our_text = hearth.complete(prompt=start, max_tokens=args.tokens // 2)["text"]
            rows.append({"text": path.name, "tokens": len(ours),
                         "agree": sum(a == b for a, b in zip(ours, theirs, strict=True)),
                         "greedy_equal": our_text == greedy_of_llama(llama, start,
                                                                     args.tokens // 2)})
    return {"model": args.model.name, "texts": rows,
            "share": sum(r["agree"] for r in rows) / sum(r["tokens"] for r in rows),
            "greedy_equal": sum(r["greedy_equal"] for r in rows)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--tokens", type=int, default=48, help="of each text (48)")
    parser.add_argument("--least", type=float, default=0.97, help="share that must agree (0.97)")
    parser.add_argument("--least-greedy", type=int, default=4,
                        help="texts that must go on alike (4)")
    parser.add_argument("--hearth", type=Path, default=DEFAULT_HEARTH)
    args = parser.parse_args()
    try:
        result = compare(args)
    except (CannotRun, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result, indent=1))
    return int(result["share"] < args.least or result["greedy_equal"] < args.least_greedy)


if __name__ == "__main__":
    sys.exit(main())
