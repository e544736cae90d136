#!/usr/bin/env bash
# From a fresh Debian 12 to a story: installs what the build needs, builds, and lets the model of
# this repository tell one.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh build
scripts/build.sh release hearth
model=models/hearth-stories-5m.gguf
hearth=build/release/bin/hearth
echo
"$hearth" inspect "$model"
echo
beginning="Once upon a time"
printf '%s' "$beginning"
"$hearth" run "$model" -p "$beginning" -n 300 --temp 0.6 --seed "${1:-1}"
