#!/usr/bin/env python3
"""Fails where code or a page refers to what is not here.

Commits (in pages): words of 7 to 12 hexadecimal digits, letters and figures among them. They are not
checked without the history (a shallow clone, an unpacked archive).
Files: names with a folder, from the root or from src/, include/ or docs/.
Documents outside of the repository: papers are cited as docs/papers.md says.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMIT = re.compile(r"(?<![\w/#.-])(?=\w*[a-f])(?=\w*\d)[0-9a-f]{7,12}(?![\w-])")
FILE = re.compile(r"(?<![\w/.<>*${}+:@~-])((?:[\w-]+/)+[\w.-]+\.(?:h|cc|py|sh|md))(?![\w*/])")
FOLDERS = ["", "src", "include", "docs"]
# Names of papers' sections that docs/papers.md does not explain, and of documents that are not here.
OUTSIDE = re.compile(r"\bFORMATS\.md|\bDESIGN\b|\bSTYLE\.md|\b[PM][12]? section \d|\bthe issue\b")
# Texts that users or libraries wrote, and files that are made or installed.
SKIPPED = ("tests/goldens/", "bench/results/", "src/serve/page/", "tools/check_references.py")
ELSEWHERE = ("build/", "hwy/", "nlohmann/", "boost/", "CLI/", "fmt/", "sys/", "linux/", "bin/",
             "models/", "shared/", "gtest/", "gmock/", "benchmark/", "spdlog/", "Eigen/")


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True,
                          check=False)


def is_file(name: str, page: Path) -> bool:
    near = [page.parent / name, *(ROOT / folder / name for folder in FOLDERS)]
    return any(path.exists() for path in near)


def flaws_of(path: Path, has_history: bool) -> list[str]:
    """What is wrong with a file, each with its line."""
    flaws = []
    is_page = path.suffix == ".md"
    for number, line in enumerate(path.read_text().splitlines(), 1):
        where = f"{path.relative_to(ROOT)}:{number}"
        comment = line if is_page else line.partition("#" if path.suffix == ".py" else "//")[2]
        for commit in COMMIT.findall(line) if is_page and has_history else []:
            if git("merge-base", "--is-ancestor", commit, "HEAD").returncode != 0:
                flaws.append(f"{where}: {commit} is not a commit of this history")
        for name in FILE.findall(comment):
            is_known = "NAME" in name or name.startswith(ELSEWHERE) or is_file(name, path)
            if not is_known:
                flaws.append(f"{where}: there is no {name}")
        for found in OUTSIDE.findall(comment):
            flaws.append(f"{where}: '{found}' is not in the repository")
    return flaws


def main() -> int:
    has_history = git("rev-parse", "--is-shallow-repository").stdout.strip() == "false"
    listed = git("ls-files", "--cached", "--others", "--exclude-standard").stdout.split()
    paths = [ROOT / name for name in listed
             if name.endswith((".h", ".cc", ".py", ".md")) and not name.startswith(SKIPPED)]
    flaws = [flaw for path in paths if path.exists() for flaw in flaws_of(path, has_history)]
    print("\n".join(flaws))
    print(f"references: {len(flaws)} lead nowhere" if flaws else "references: checked")
    return 1 if flaws else 0


if __name__ == "__main__":
    sys.exit(main())
