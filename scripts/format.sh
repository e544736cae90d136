#!/usr/bin/env bash
# Formats the C++ sources; with --check only says what is not formatted, and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run --Werror)
git ls-files '*.cc' '*.h' | xargs clang-format "${mode[@]}"
