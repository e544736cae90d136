#!/usr/bin/env python3
"""Makes tests/goldens/quants.{json,bin,f32}: quantized blocks and their values.

The reference is gguf-py's numpy dequantizer, which shares no code with Hearth.
Codes are random bit patterns, because a test on the output of one quantizer
would miss codes that this quantizer never makes. Only the scale fields are
patched, so that every value is finite. Needs numpy and gguf, not torch.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

SEED = 20240229
DEFAULT_OUT = Path(__file__).resolve().parents[2] / "tests" / "goldens"
# One cache line, so that a test may load blocks with aligned instructions.
ALIGNMENT_BYTES = 64
SMALL_BLOCK_WEIGHTS = 1024
# Four blocks of 256 would leave many scale positions tried by few bit patterns.
SUPER_BLOCK_WEIGHTS = 2048


@dataclass(frozen=True)
class QuantCase:
    """A type and the byte offsets of the float16 fields inside one block."""

    name: str
    f16_fields: tuple[int, ...] = ()


CASES = (
    QuantCase("Q4_0", (0,)),
    QuantCase("Q4_1", (0, 2)),
    QuantCase("Q5_0", (0,)),
    QuantCase("Q5_1", (0, 2)),
    QuantCase("Q8_0", (0,)),
    QuantCase("Q2_K", (80, 82)),
    QuantCase("Q3_K", (108,)),
    QuantCase("Q4_K", (0, 2)),
    QuantCase("Q5_K", (0, 2)),
    QuantCase("Q6_K", (208,)),
    QuantCase("IQ4_NL", (0,)),
    QuantCase("MXFP4"),
    QuantCase("NVFP4"),
    QuantCase("IQ4_XS", (0,)),
    QuantCase("IQ3_XXS", (0,)),
    QuantCase("IQ3_S", (0,)),
    QuantCase("IQ2_XXS", (0,)),
    QuantCase("IQ2_XS", (0,)),
    QuantCase("IQ2_S", (0,)),
    QuantCase("IQ1_S", (0,)),
    QuantCase("IQ1_M"),
    QuantCase("TQ1_0", (52,)),
    QuantCase("TQ2_0", (64,)),
    QuantCase("F16"),
    QuantCase("BF16"),
)


def random_scales(rng: np.random.Generator, count: int) -> np.ndarray:
    """Float16 scales of either sign around 2^-10 .. 2^-2, plus edge values.

    The edges are what converters get wrong: zero, the smallest and the largest
    subnormal, the smallest normal number.
    """
    magnitude = np.exp2(rng.uniform(-10.0, -2.0, count))
    scales = (magnitude * rng.choice([-1.0, 1.0], count)).astype(np.float16)
    edges = np.array([0x0000, 0x0001, 0x83FF, 0x0400], dtype=np.uint16)
    # A quarter at most, so that types with few blocks keep mostly usual scales.
    edge_count = min(len(edges), count // 4)
    places = rng.permutation(count)[:edge_count]
    scales.view(np.uint16)[places] = rng.permutation(edges)[:edge_count]
    return scales


def patch_float16(rng: np.random.Generator, blocks: np.ndarray) -> None:
    """Clears the top exponent bit where a pattern is an infinity or a NaN."""
    bits = blocks.reshape(-1).view(np.uint16)
    bits[(bits & 0x7C00) == 0x7C00] &= 0xBFFF
    # Random exponents seldom hit subnormals: force some.
    bits[rng.permutation(bits.size)[:64]] &= 0x83FF


def patch_bfloat16(rng: np.random.Generator, blocks: np.ndarray) -> None:
    """Moves exponents into 2^-32 .. 2^31, so that sums of values stay finite."""
    bits = blocks.reshape(-1).view(np.uint16)
    exponent = rng.integers(127 - 32, 127 + 32, bits.size, dtype=np.uint16)
    bits[:] = (bits & 0x807F) | (exponent << 7)
    bits[:4] = (0x0000, 0x8000, 0x3F80, 0xBF80)


def patch_mxfp4(rng: np.random.Generator, blocks: np.ndarray) -> None:
    """E8M0 exponents around 1; 0 and 1 are the two that halve to subnormals."""
    blocks[:, 0] = rng.integers(127 - 16, 127 + 8, len(blocks), dtype=np.uint8)
    blocks[:3, 0] = (0, 1, 2)


def patch_nvfp4(rng: np.random.Generator, blocks: np.ndarray) -> None:
    """Every byte is a scale; the first blocks have zero, subnormals, the NaN and the largest."""
    blocks[0, :4] = (0x00, 0x01, 0x07, 0x08)
    blocks[1, :4] = (0x7F, 0x7E, 0x3F, 0x40)


def patch_iq1_m(rng: np.random.Generator, blocks: np.ndarray) -> None:
    """The scale lies in the upper four bits of the last four words, the lowest first."""
    scales = random_scales(rng, len(blocks)).view(np.uint16)
    words = blocks[:, -8:].copy().view(np.uint16)
    for i in range(4):
        words[:, i] = (words[:, i] & 0x0FFF) | (scales >> (4 * i) & 15) << 12
    blocks[:, -8:] = words.view(np.uint8)


def make_blocks(rng: np.random.Generator, case: QuantCase) -> tuple[np.ndarray, int]:
    """Returns (bytes [n_blocks, block_bytes], number of weights)."""
    qtype = GGMLQuantizationType[case.name]
    block_weights, block_bytes = GGML_QUANT_SIZES[qtype]
    n_weights = SUPER_BLOCK_WEIGHTS if block_weights == 256 else SMALL_BLOCK_WEIGHTS
    n_blocks = n_weights // block_weights
    blocks = rng.integers(0, 256, (n_blocks, block_bytes), dtype=np.uint8)
    patches = {"F16": patch_float16, "BF16": patch_bfloat16, "MXFP4": patch_mxfp4,
               "NVFP4": patch_nvfp4, "IQ1_M": patch_iq1_m}
    if case.name in patches:
        patches[case.name](rng, blocks)
    for offset in case.f16_fields:
        scales = random_scales(rng, n_blocks)
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(n_blocks, 2)
    return blocks, n_weights


def make_entry(case: QuantCase, blob: bytearray, floats: list[np.ndarray]) -> dict:
    """Appends one type to the blob and the floats; returns its index entry."""
    # A stream of its own per type: adding a type leaves the others' bytes alone.
    rng = np.random.default_rng([SEED, *case.name.encode()])
    qtype = GGMLQuantizationType[case.name]
    blocks, n_weights = make_blocks(rng, case)
    values = dequantize(blocks.reshape(-1), qtype).astype("<f4").reshape(-1)
    if values.size != n_weights or not np.isfinite(values).all():
        raise ValueError(f"{case.name}: bad reference values")
    blob.extend(bytes(-len(blob) % ALIGNMENT_BYTES))
    entry = {
        "type": case.name,
        "ggml_type": int(qtype),
        "block_weights": GGML_QUANT_SIZES[qtype][0],
        "block_bytes": GGML_QUANT_SIZES[qtype][1],
        "n_weights": n_weights,
        "offset_bytes": len(blob),
        "size_bytes": blocks.size,
        "float_offset": sum(f.size for f in floats),
    }
    blob.extend(blocks.tobytes())
    floats.append(values)
    return entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="output folder")
    args = parser.parse_args()
    blob = bytearray()
    floats: list[np.ndarray] = []
    entries = [make_entry(case, blob, floats) for case in CASES]
    index = {
        "reference": "gguf.quants.dequantize",
        "gguf_version": version("gguf"),
        "numpy_version": np.__version__,
        "seed": SEED,
        "blocks_file": "quants.bin",
        "values_file": "quants.f32",
        "types": entries,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "quants.bin").write_bytes(bytes(blob))
    (args.out / "quants.f32").write_bytes(np.concatenate(floats).tobytes())
    (args.out / "quants.json").write_text(json.dumps(index, indent=1) + "\n")
    for suffix in ("json", "bin", "f32"):
        path = args.out / f"quants.{suffix}"
        print(f"{path.name:12} {path.stat().st_size:8} bytes")


if __name__ == "__main__":
    main()
