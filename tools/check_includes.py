#!/usr/bin/env python3
"""Fails where a file of src/ includes what its folder may not (docs/architecture.md).

The table below is the architecture: a folder may include itself, the folders of its row, and the
third-party headers of its row. Direct includes are checked, in code and in CMake's DEPS lists.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEVELS = [
    ["base"],
    ["tensor", "storage", "plan"],
    ["kernels", "format", "cache", "accel"],
    ["ops", "kv", "text", "model", "hub"],
    ["sparsity", "import"],
    ["pipeline"],
    ["pass"],
    ["engine"],
    ["measure"],
    ["prepare", "planner", "api"],
    ["serve"],
    ["cli"],
]


def below(level: int, *left_out: str) -> set[str]:
    """All folders of levels under `level`, but for those left out."""
    return {f for row in LEVELS[:level] for f in row} - set(left_out)


# folder: (folders it may include, third-party header prefixes it may include)
RULES: dict[str, tuple[set[str], set[str]]] = {
    "base": (set(), {"spdlog", "xxhash"}),
    "tensor": ({"base"}, set()),
    "storage": ({"base"}, {"liburing"}),
    "plan": ({"base"}, {"nlohmann"}),
    "kernels": ({"base", "tensor"}, {"hwy"}),
    "format": ({"base", "tensor", "storage", "plan"}, {"nlohmann"}),
    "cache": ({"base", "plan"}, set()),
    "accel": ({"base", "tensor", "storage"}, {"CL"}),
    "ops": (below(3, "format", "cache"), set()),
    "kv": ({"base", "tensor", "storage", "kernels"}, set()),
    "text": ({"base", "plan", "format"}, {"pcre2", "utf8proc", "nlohmann"}),
    "model": ({"base", "tensor", "format"}, set()),
    # Loaded when a model is fetched, by the command line alone.
    "hub": ({"base", "storage", "plan", "format"}, {"curl", "openssl", "nlohmann"}),
    # Published folders, read as the GGUF files that they would be.
    "import": (below(4, "ops", "kv", "hub"), {"nlohmann"}),
    "sparsity": (below(4, "text", "hub"), set()),
    "pipeline": (below(5, "text", "hub", "import"), set()),
    "pass": (below(6, "format", "hub", "import"), set()),
    "engine": (below(7, "kernels", "hub"), set()),
    # What the public library does without.
    "measure": (below(8, "kernels", "hub"), {"nlohmann"}),
    "prepare": (below(9, "hub"), {"Eigen", "nlohmann"}),
    # It plans for what prepare makes: shapes, planted rates, pictures.
    "planner": (below(9, "hub") | {"prepare"}, {"z3", "coin", "nlohmann"}),
    "api": ({"base", "plan", "engine", "text"}, set()),
    "serve": ({"api", "base", "plan"}, {"boost", "nlohmann"}),
    "cli": (below(11, "kernels") | {"serve"}, {"CLI", "nlohmann"}),
}
# Rooms of a folder, from the lowest: a file may include what is in its room and in lower ones. ""
# are the files of the folder itself.
ROOMS = {
    "text": ["tokenizer", "grammar", "jinja/values", "jinja/builtins", "jinja/syntax", "jinja",
             "tools", "chat"],
    "storage": ["", "async"],
    # What all back ends share is "" too: it includes none of them.
    "accel": ["", "none", "opencl"],
    # Formulas that know no pass; what lies on a device.
    "pass": ["math", "device", ""],
    # What streaming of neurons and of extents share is "".
    "pipeline": ["", "extents"],
    "engine": ["load", "", "session"],
    "prepare": ["shapes", "convert", "profile", "predict", "pack", "quantize", "synth"],
    "planner": ["doctor", "cost", "placement", "simulator", "emulator"],
}
# Folders of include/, and the folder of src/ whose door they are.
PUBLIC = {"hearth": "api"}
# Headers of the language and the system need no entry: they have no folder, or one of these.
SYSTEM_FOLDERS = {"sys", "linux", "asm", "netinet", "arpa"}
EVERYWHERE = {"fmt"}  # formatting, which std::format will replace
TEST_ONLY = {"gtest", "gmock", "nlohmann", "benchmark"}
THIRD_PARTY_FILES = {
    "xxhash.h": "xxhash", "liburing.h": "liburing", "utf8proc.h": "utf8proc",
    "pcre2.h": "pcre2", "z3++.h": "z3", "z3.h": "z3",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
DEPS = re.compile(r"DEPS\s+([a-z_\s]+?)(?:\bLIBS\b|\bTEST_LIBS\b|\))")


def third_party(header: str) -> str | None:
    """The library that <header> belongs to, or None for the language and the system."""
    if header in THIRD_PARTY_FILES:
        return THIRD_PARTY_FILES[header]
    if "/" not in header:
        return None
    folder = header.split("/")[0]
    return None if folder in SYSTEM_FOLDERS else folder


def check_file(path: Path, folder: str) -> list[str]:
    """Complaints about the includes of one source file."""
    folders, libraries = RULES[folder]
    is_test = path.name.endswith("_test.cc") or path.name.startswith("test_")  # helpers of tests
    out = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, header = match.groups()
        if header.startswith("hwy/"):  # Highway's headers use quotes for its own lookup
            quote = "<"
        where = f"{path.relative_to(ROOT)}:{number}"
        if quote == '"':
            target = header.split("/")[0]
            target = PUBLIC.get(target, target)
            if "/" not in header:
                out.append(f'{where}: "{header}" needs its folder in front')
            elif target not in RULES:
                out.append(f'{where}: "{header}" is in no known folder')
            elif target == folder and not is_test and not keeps_to_room(path, header):
                out.append(f"{where}: a lower room may not include {header}")
            elif target != folder and target not in folders and not (
                    is_test and target in below_or_beside(folder)):
                out.append(f"{where}: {folder}/ may not include {target}/")
        else:
            library = third_party(header)
            allowed = libraries | EVERYWHERE | (TEST_ONLY if is_test else set())
            if library and library not in allowed:
                out.append(f"{where}: {folder}/ may not include <{header}>")
    return out


def keeps_to_room(path: Path, header: str) -> bool:
    """Whether a header of the file's own folder is in its room or in a lower one."""
    folder, *rest = path.relative_to(ROOT / "src").parts
    rooms = ROOMS.get(folder)
    if not rooms:
        return True
    used, own = ("/".join(parts[:-1]) for parts in (header.split("/")[1:], rest))
    return used in rooms and own in rooms and rooms.index(used) <= rooms.index(own)


def check_binding(path: Path) -> list[str]:
    """Complaints about a file of the Python module, which knows no more than its users could."""
    return [f"{path.relative_to(ROOT)}: it may not include {match.group(2)}"
            for match in map(INCLUDE.match, path.read_text().splitlines())
            if match and ((match.group(1) == '"' and "/" in match.group(2))
                          or third_party(match.group(2)) not in {None, "pybind11", *PUBLIC})]


def check_public(path: Path) -> list[str]:
    """Complaints about a public header, which includes its like and the language, no more."""
    return [f"{path.relative_to(ROOT)}: it may not include {match.group(2)}"
            for match in map(INCLUDE.match, path.read_text().splitlines())
            if match and match.group(2).split("/")[0] not in PUBLIC
            and (match.group(1) == '"' or third_party(match.group(2)))]


def below_or_beside(folder: str) -> set[str]:
    """What a test may use to build its fixtures: everything not above its folder."""
    level = next(i for i, row in enumerate(LEVELS) if folder in row)
    return below(level + 1)


def check_cmake(folder: str) -> list[str]:
    """Complaints about the folders that a folder's CMake target links."""
    out = []
    rooms = ROOMS.get(folder, [])
    for path in [ROOT / "src" / folder / "CMakeLists.txt",
                 *(ROOT / "src" / folder / room / "CMakeLists.txt" for room in rooms)]:
        if not path.exists():
            continue
        own = str(path.parent.relative_to(ROOT / "src" / folder))
        below_it = rooms[:rooms.index(own)] if own in rooms else []
        may = RULES[folder][0] | {f"{folder}_{room}".replace("/", "_") for room in below_it}
        out += [f"{path.relative_to(ROOT)}: DEPS names {dep}"
                for match in DEPS.finditer(path.read_text()) for dep in match.group(1).split()
                if dep not in may]
    return out


def main() -> int:
    complaints = []
    for folder in sorted(p.name for p in (ROOT / "src").iterdir() if p.is_dir()):
        if folder not in RULES:
            complaints.append(f"src/{folder}: not in the table of tools/check_includes.py")
            continue
        for path in sorted((ROOT / "src" / folder).rglob("*")):
            if path.suffix in {".h", ".cc"}:
                complaints += check_file(path, folder)
        complaints += check_cmake(folder)
    for path in sorted((ROOT / "include").rglob("*.h*")):
        complaints += check_public(path)
    for path in sorted((ROOT / "bindings/python/native").glob("*.*")):
        complaints += check_binding(path)
    print("\n".join(complaints) if complaints else "includes: every folder keeps to its row")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
