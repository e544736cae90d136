#!/usr/bin/env bash
# Formats the C++ sources; with --check only says what is not formatted, and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run --Werror)
# New files count too: those that git does not know yet and does not ignore.
git ls-files --cached --others --exclude-standard "*.cc" "*.h" | xargs clang-format "${mode[@]}"
