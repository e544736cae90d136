#!/usr/bin/env python3
"""Fails where a file, a function, a class or a folder is too large; reports what comes near.

    file                  500 lines, 400 are reported
    function               60 lines, 50 are reported; tests and tables of cases 100
    parameters              6; the C ABI and kernels excepted
    members of a class     25; plain structs excepted
    methods of a class     30
    files of a folder      45 at one level

Functions and classes come from universal-ctags; without it only files and folders are measured.
"""
import json
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = {"file": 500, "function": 60, "test": 100, "parameters": 6, "members": 25, "methods": 30,
          "folder": 45}
REPORTED = {"file": 400, "function": 50}
# Tables are data, not logic: long by nature.
TABLES = {"src/text/tokenizer/pretokenizers.cc", "src/text/tools/tool_syntax.cc:Rows"}
# Goldens are data; the C ABI and the functions of kernel tables have the parameters that they need.
DATA_FOLDERS = ("tests/goldens", "bench/results")
ABI = ("include/", "src/api/c_api.cc", "src/kernels/")


def listed(*patterns: str) -> list[str]:
    """Files under version control, and new ones."""
    run = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
                         cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in run.stdout.split() if (ROOT / name).exists()]


def tags(names: list[str]) -> list[dict]:
    """Functions and members of C++ files."""
    run = subprocess.run(
        ["ctags", "-L", "-", "--languages=C++", "--kinds-C++=fpm", "--fields=+neKSs",
         "--output-format=json", "-f", "-"],
        input="\n".join(names), capture_output=True, text=True, cwd=ROOT)
    return [json.loads(line) for line in run.stdout.splitlines()]


def parameters(signature: str) -> int:
    """How many parameters "(int a, std::pair<int, int> b) const" has."""
    depth, count, text = 0, 1, signature[1:]
    for at, letter in enumerate(text):
        if letter == ")" and depth == 0:
            return count if text[:at].strip() else 0
        depth += (letter in "<({[") - (letter in ">)}]")
        count += letter == "," and depth == 0
    return count


def is_test(path: str) -> bool:
    return path.endswith("_test.cc") or path.startswith("tests/") or "/test_" in path


def measure() -> list[tuple[str, str, int]]:
    """(kind, name, size) of everything."""
    sizes = [("file", name, len((ROOT / name).read_text().splitlines()))
             for name in listed("*.cc", "*.h", "*.py") if name not in TABLES]
    folders = Counter(str(Path(name).parent) for name in listed())
    sizes += [("folder", name, count) for name, count in folders.items()
              if not name.startswith(DATA_FOLDERS)]
    if not shutil.which("ctags"):
        return sizes
    members: dict[str, set] = defaultdict(set)
    methods: dict[str, set] = defaultdict(set)
    for tag in tags(listed("*.cc", "*.h")):
        path, name, signature = tag["path"], tag["name"], tag.get("signature", "()")
        scope = f"{path}:{tag.get('scope', '')}"
        if tag["kind"] == "member" and tag.get("scopeKind") == "class":
            members[scope].add(name)
        if tag["kind"] != "member" and tag.get("scopeKind") == "class":
            methods[scope].add(name + signature)
        if tag["kind"] == "function" and "end" in tag:
            lines = tag["end"] - tag["line"] + 1
            if f"{path}:{name}" not in TABLES:
                sizes.append(("test" if is_test(path) else "function", f"{path}:{name}", lines))
        if tag["kind"] != "member" and not path.startswith(ABI) and not is_test(path):
            sizes.append(("parameters", f"{path}:{name}", parameters(signature)))
    sizes += [("members", name, len(names)) for name, names in members.items()]
    sizes += [("methods", name, len(names)) for name, names in methods.items()
              if not is_test(name) and not name.endswith("_test")]
    return sizes


def main() -> int:
    failed = False
    for kind, name, size in sorted(set(measure()), key=lambda one: (one[0], -one[2], one[1])):
        if size > LIMITS[kind]:
            failed = True
            print(f"over the limit: {kind} {name}, {size} of at most {LIMITS[kind]}")
        elif size > REPORTED.get(kind, LIMITS[kind]):
            print(f"long: {kind} {name}, {size}")
    print("sizes: checked")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
