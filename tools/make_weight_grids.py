#!/usr/bin/env python3
"""Makes src/kernels/stored/grids.h: the vectors of weights that the grid types of GGUF index.

The numbers are those of the gguf package (PyPI). Here an entry is one number: the level of weight i
in its bits 2i and 2i + 1 (eight weights), or 3i to 3i + 2 (four weights). Needs numpy and gguf.
"""
import argparse
import subprocess
from importlib.metadata import version
from pathlib import Path

import numpy as np
from gguf import quants

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "src/kernels/stored/grids.h"
# Name of the table, class of the package, levels.
TABLES = (
    ("kIq2XxsGrid", quants.IQ2_XXS, "8, 25, 43"),
    ("kIq2XsGrid", quants.IQ2_XS, "8, 25, 43"),
    ("kIq2SGrid", quants.IQ2_S, "8, 25, 43"),
    ("kIq1Grid", quants.IQ1_S, "-1, 0, 1; IQ1_M has the same"),
    ("kIq3XxsGrid", quants.IQ3_XXS, "4, 12, 20, 28, 36, 44, 52, 62"),
    ("kIq3SGrid", quants.IQ3_S, "1, 3, 5, 7, 9, 11, 13, 15"),
)
HEAD = """// Made by tools/make_weight_grids.py with the numbers of gguf {}.
//
// An index in a block of a grid type stands for some weights at once. An entry has their levels: of
// eight weights two bits each, of four weights three bits each, the first weight in the lowest.
#pragma once

#include <cstdint>

namespace hearth::kernels {{
"""


def entries(quant) -> list[int]:
    """The grid of a class of the package as numbers."""
    quant.init_grid()
    levels = np.searchsorted(np.array(quant.grid_map), quant.grid.reshape(quant.grid_shape))
    bits = 2 if quant.grid_shape[1] == 8 else 3
    shifts = bits * np.arange(quant.grid_shape[1])
    return [int(entry) for entry in (levels << shifts).sum(axis=1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    text = HEAD.format(version("gguf"))
    for name, quant, levels in TABLES:
        numbers = entries(quant)
        text += f"\n// Levels {levels}.\ninline constexpr uint16_t {name}[{len(numbers)}] = {{\n"
        text += ", ".join(map(str, numbers)) + "};\n"
    args.out.write_text(text + "\n}  // namespace hearth::kernels\n")
    subprocess.run(["clang-format", "-i", str(args.out)], check=True)


if __name__ == "__main__":
    main()
