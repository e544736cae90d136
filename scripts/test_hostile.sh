#!/usr/bin/env bash
# What hostile clients, templates and files may not do: test_hostile.sh [TEST...]. Some minutes; not
# in CI. Needs a release build; as root servers run in memory groups of their budget.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 tests/python/test_hostile.py build/release/bin/hearth models/hearth-stories-5m.gguf \
  "$folder" "$@"
