#!/usr/bin/env python3
"""Compares what `hearth convert` makes of quantized folders with the formats' formulas in numpy.

Writes folders of a tiny Llama as GPTQ, AWQ, compressed-tensors and FP8 publish them, quantized by
rounding; converts each; reads the file with the package gguf. Weights must be scale * (code - zero),
bit for bit, or rounded to F16 where the file has F16. Then the folder and its file must continue a
prompt with the same tokens. Exit status: 0 all agree, 1 one does not, 2 could not run.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engines import DEFAULT_HEARTH, CannotRun, run_command

HIDDEN, FFN, HEADS, KV_HEADS, TOKENS, LAYERS = 256, 384, 4, 2, 64, 2
HEAD_DIM = HIDDEN // HEADS
GROUP = 64
MODULES = {"self_attn.q_proj": ("attn_q", HIDDEN, HIDDEN),
           "self_attn.k_proj": ("attn_k", KV_HEADS * HEAD_DIM, HIDDEN),
           "self_attn.v_proj": ("attn_v", KV_HEADS * HEAD_DIM, HIDDEN),
           "self_attn.o_proj": ("attn_output", HIDDEN, HIDDEN),
           "mlp.gate_proj": ("ffn_gate", FFN, HIDDEN), "mlp.up_proj": ("ffn_up", FFN, HIDDEN),
           "mlp.down_proj": ("ffn_down", HIDDEN, FFN)}
# How far in a word of AWQ's the eight outputs that it holds lie, in order.
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]
RNG = np.random.default_rng(7)


def pack(codes: Array, bits: int, axis: int) -> Array:
    """Codes in 32-bit words along an axis, the first in the lowest bits."""
    codes = np.moveaxis(codes, axis, -1).astype(np.uint32)
    stream = (codes[..., None] >> np.arange(bits, dtype=np.uint32) & 1).reshape(*codes.shape[:-1], -1)
    words = stream.reshape(*stream.shape[:-1], -1, 32)
    packed = (words << np.arange(32, dtype=np.uint32)).sum(axis=-1, dtype=np.uint32)
    return np.ascontiguousarray(np.moveaxis(packed, -1, axis)).view(np.int32)


def round_groups(w: Array, bits: int, is_symmetric: bool, groups: Array) -> tuple[Array, Array, Array]:
    """Codes [N, K], scales and zeros [N, groups] of a matrix, by rounding to the nearest."""
    count, most = int(groups.max()) + 1, 2**bits - 1
    scales, zeros = np.zeros((len(w), count), np.float16), np.zeros((len(w), count), np.int32)
    codes = np.zeros(w.shape, np.int32)
    for group in range(count):
        part = w[:, groups == group]
        if is_symmetric:
            scale = np.abs(part).max(axis=1) / 2 ** (bits - 1)
            zero = np.full(len(w), 2 ** (bits - 1))
        else:
            low, high = np.minimum(part.min(axis=1), 0), np.maximum(part.max(axis=1), 0)
            scale = (high - low) / most
            zero = np.clip(np.round(-low / scale), 1, most)
        scales[:, group], zeros[:, group] = scale, zero
        near = np.round(part / scales[:, group, None].astype(np.float32)) + zero[:, None]
        codes[:, groups == group] = np.clip(near, 0, most)
    return codes, scales, zeros


def values(codes: Array, scales: Array, zeros: Array, groups: Array) -> Array:
    return scales.astype(np.float32)[:, groups] * (codes - zeros[:, groups]).astype(np.float32)


class Gptq:
    def __init__(self, bits: int, is_symmetric: bool, has_order: bool = False, version: int = 1):
        self.bits, self.is_symmetric, self.has_order, self.version = bits, is_symmetric, has_order, version
        self.config = {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "sym": is_symmetric,
                       "desc_act": has_order, "checkpoint_format": "gptq" if version == 1 else "gptq_v2"}

    def __call__(self, name: str, w: Array, out: Tensors) -> Array:
        groups = np.arange(w.shape[1], dtype=np.int32) // GROUP
        if self.has_order:
            groups = RNG.permutation(groups).astype(np.int32)
        codes, scales, zeros = round_groups(w, self.bits, self.is_symmetric, groups)
        out[f"{name}.qweight"] = pack(codes.T, self.bits, 0)
        out[f"{name}.qzeros"] = pack(zeros.T - (1 if self.version == 1 else 0), self.bits, 1)
        out[f"{name}.scales"] = np.ascontiguousarray(scales.T)
        out[f"{name}.g_idx"] = groups
        return values(codes, scales, zeros, groups)


class Awq:
    config = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}

    def __call__(self, name: str, w: Array, out: Tensors) -> Array:
        groups = np.arange(w.shape[1]) // GROUP
        codes, scales, zeros = round_groups(w, 4, False, groups)

        def words(numbers: Array) -> Array:
            eights = numbers.reshape(len(numbers), -1, 8)[:, :, AWQ_ORDER]
            return pack(eights.reshape(len(numbers), -1), 4, 1)

        out[f"{name}.qweight"] = words(codes.T)
        out[f"{name}.qzeros"] = words(zeros.T)
        out[f"{name}.scales"] = np.ascontiguousarray(scales.T)
        return values(codes, scales, zeros, groups)


class Compressed:
    def __init__(self, is_symmetric: bool):
        self.is_symmetric = is_symmetric
        arguments = {"num_bits": 4, "type": "int", "symmetric": is_symmetric, "strategy": "group",
                     "group_size": GROUP}
        self.config = {"quant_method": "compressed-tensors", "format": "pack-quantized",
                       "config_groups": {"group_0": {"targets": ["Linear"], "weights": arguments}}}

    def __call__(self, name: str, w: Array, out: Tensors) -> Array:
        groups = np.arange(w.shape[1]) // GROUP
        codes, scales, zeros = round_groups(w, 4, self.is_symmetric, groups)
        out[f"{name}.weight_packed"] = pack(codes, 4, 1)
        out[f"{name}.weight_scale"] = scales
        out[f"{name}.weight_shape"] = np.array(w.shape, np.int64)
        if not self.is_symmetric:
            out[f"{name}.weight_zero_point"] = pack(zeros, 4, 0)
        return values(codes, scales, zeros, groups)


class Fp8:
    """E4M3 with a scale for each block of 128 x 128."""

    config = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
              "weight_block_size": [128, 128]}
    BITS = np.arange(256)
    TABLE = np.where(BITS >> 3 & 15, (8 + (BITS & 7)) * 2.0 ** ((BITS >> 3 & 15) - 10),
                     (BITS & 7) * 2.0**-9) * np.where(BITS < 128, 1, -1)

    def __call__(self, name: str, w: Array, out: Tensors) -> Array:
        blocks = (-(-w.shape[0] // 128), -(-w.shape[1] // 128))
        scales = np.zeros(blocks, np.float32)
        for row in range(blocks[0]):
            for col in range(blocks[1]):
                part = w[128 * row:128 * row + 128, 128 * col:128 * col + 128]
                scales[row, col] = np.abs(part).max() / 448
        full = scales.repeat(128, 0).repeat(128, 1)[:w.shape[0], :w.shape[1]]
        usable = np.array([b for b in range(256) if b & 127 != 127])
        order = usable[np.argsort(self.TABLE[usable], kind="stable")]
        middles = (self.TABLE[order][1:] + self.TABLE[order][:-1]) / 2
        bits = order[np.searchsorted(middles, w / full)].astype(np.uint8)
        out[f"{name}.weight"] = bits
        out[f"{name}.weight_scale_inv"] = scales
        return full * self.TABLE[bits].astype(np.float32)


FORMATS: dict[str, Callable[[str, Array, Tensors], Array]] = {
    "gptq": Gptq(4, True), "gptq asymmetric": Gptq(4, False), "gptq v2 asymmetric": Gptq(4, False, version=2),
    "gptq act-order": Gptq(4, True, True), "gptq 2 bits": Gptq(2, False), "gptq 3 bits": Gptq(3, True),
    "gptq 8 bits": Gptq(8, True), "awq": Awq(), "compressed-tensors": Compressed(True),
    "compressed-tensors asymmetric": Compressed(False), "fp8": Fp8()}
SAFETENSORS_TYPES = {"float32": "F32", "float16": "F16", "int32": "I32", "int64": "I64", "uint8": "F8_E4M3"}


def write_folder(folder: Path, quantization: dict[str, Any], tensors: Tensors) -> None:
    config = {"model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
              "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "intermediate_size": FFN,
              "max_position_embeddings": 64, "vocab_size": TOKENS, "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config))
    vocabulary = {"<unk>": 0, **{f"<0x{i:02X}>": i for i in range(1, TOKENS)}}
    (folder / "tokenizer.json").write_text(json.dumps(
        {"model": {"type": "BPE", "byte_fallback": True, "vocab": vocabulary, "merges": []}}))
    header, data = {}, b""
    for name, tensor in tensors.items():
        header[name] = {"dtype": SAFETENSORS_TYPES[tensor.dtype.name], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + tensor.nbytes]}
        data += tensor.tobytes()
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + data)


def make(quantize: Any, folder: Path) -> dict[str, Array]:
    """Writes a folder; returns the weights of GGUF's matrices."""
    tensors: Tensors = {"model.embed_tokens.weight": RNG.standard_normal((TOKENS, HIDDEN)).astype(np.float32),
                        "lm_head.weight": RNG.standard_normal((TOKENS, HIDDEN)).astype(np.float32),
                        "model.norm.weight": np.ones(HIDDEN, np.float32)}
    expected = {}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}.{norm}.weight"] = np.ones(HIDDEN, np.float32)
        for module, (gguf, rows, cols) in MODULES.items():
            w = (RNG.standard_normal((rows, cols)) / np.sqrt(cols)).astype(np.float32)
            made = quantize(f"{at}.{module}", w, tensors)
            if gguf in ("attn_q", "attn_k"):  # GGUF's Llama rotates neighbouring rows
                made = made.reshape(-1, 2, HEAD_DIM // 2, cols).swapaxes(1, 2).reshape(rows, cols)
            expected[f"blk.{layer}.{gguf}.weight"] = made
    write_folder(folder, quantize.config, tensors)
    return expected


def ids_of(model: Path) -> list[int]:
    output = run_command([str(DEFAULT_HEARTH), "run", str(model), "-p", "!", "-n", "8", "--temp", "0",
                          "--raw", "--json"])
    ids: list[int] = json.loads(output)["token_ids"]
    return ids


def check(name: str, quantize: Any) -> str:
    """What is wrong with a format; nothing where all is well."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    with tempfile.TemporaryDirectory() as place:
        folder, out = Path(place) / "folder", Path(place) / "out.gguf"
        folder.mkdir()
        expected = make(quantize, folder)
        run_command([str(DEFAULT_HEARTH), "convert", str(folder), "-o", str(out)])
        types = set()
        for tensor in GGUFReader(out).tensors:
            if tensor.name not in expected:
                continue
            types.add(tensor.tensor_type.name)
            found = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            wished = expected.pop(tensor.name)
            if tensor.tensor_type.name == "F16":
                wished = wished.astype(np.float16).astype(np.float32)
            if not np.array_equal(found.reshape(wished.shape), wished):
                return f"{name}: {tensor.name} ({tensor.tensor_type.name}) has other weights"
        if expected:
            return f"{name}: {sorted(expected)[0]} is missing"
        if ids_of(folder) != ids_of(out):
            return f"{name}: the folder and its file say different things"
    print(f"{name}: {', '.join(sorted(types))}, all weights agree")
    return ""


def main() -> int:
    try:
        wrong = [text for name, quantize in FORMATS.items() if (text := check(name, quantize))]
    except (CannotRun, ImportError) as error:
        print(error, file=sys.stderr)
        return 2
    for text in wrong:
        print(text, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
