#!/usr/bin/env python3
"""Reports files over 400 lines and functions over 50; fails at 800 and 100 (DESIGN, budgets).

Function lengths come from universal-ctags; without it only files are measured.
"""
import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_SOFT, FILE_HARD = 400, 800
FUNCTION_SOFT, FUNCTION_HARD = 50, 100
# Tables are data, not logic: long by nature.
TABLES = {"src/text/tokenizer/pretokenizers.cc"}


def sources() -> list[Path]:
    """C++ and Python files under version control."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard",
                             "*.cc", "*.h", "*.py"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split()
    return [ROOT / name for name in listed]


def functions(paths: list[Path]) -> list[tuple[int, str]]:
    """(lines, "file:function") of every C++ function."""
    names = "\n".join(str(p) for p in paths if p.suffix in {".cc", ".h"})
    run = subprocess.run(
        ["ctags", "-L", "-", "--languages=C++", "--kinds-C++=f", "--fields=+ne",
         "--output-format=json", "-f", "-"], input=names, capture_output=True, text=True)
    found = []
    for line in run.stdout.splitlines():
        tag = json.loads(line)
        if "end" in tag:
            name = f"{Path(tag['path']).relative_to(ROOT)}:{tag['name']}"
            found.append((tag["end"] - tag["line"] + 1, name))
    return found


def main() -> int:
    paths = sources()
    rows = [(len(p.read_text().splitlines()), str(p.relative_to(ROOT))) for p in paths]
    kinds = [("file", FILE_SOFT, FILE_HARD, [r for r in rows if r[1] not in TABLES])]
    if shutil.which("ctags"):
        kinds.append(("function", FUNCTION_SOFT, FUNCTION_HARD, functions(paths)))
    failed = False
    for kind, soft, hard, measured in kinds:
        for lines, name in sorted(measured, reverse=True):
            if lines > hard:
                failed = True
            if lines > soft:
                print(f"{'over the limit' if lines > hard else 'long'}: {kind} {name}, {lines} lines")
    print("sizes: checked")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
