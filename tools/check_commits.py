#!/usr/bin/env python3
"""Fails where a page names a commit that is not in this repository's history.

A commit is a word of 7 to 12 hexadecimal digits, letters and figures among them. Nothing is checked
without the history (a shallow clone, an unpacked archive).
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORD = re.compile(r"(?<![\w/#.-])(?=\w*[a-f])(?=\w*\d)[0-9a-f]{7,12}(?![\w-])")


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True,
                          check=False)


def main() -> int:
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        print("commits: not checked, the history is not here")
        return 0
    missing = 0
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("models/*.md")]):
        for number, line in enumerate(page.read_text().splitlines(), 1):
            for commit in WORD.findall(line):
                if git("merge-base", "--is-ancestor", commit, "HEAD").returncode != 0:
                    print(f"{page.relative_to(ROOT)}:{number}: {commit} is not a commit of this history")
                    missing += 1
    print("commits: checked" if missing == 0 else f"commits: {missing} do not exist")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
