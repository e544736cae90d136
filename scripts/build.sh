#!/usr/bin/env bash
# Configures and builds a preset: build.sh PRESET [TARGET...]. In CI warnings are errors.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
targets=()
for target in "$@"; do targets+=(--target "$target"); done
cmake --preset "$preset" ${CI:+-DHEARTH_WERROR=ON} >/dev/null
cmake --build --preset "$preset" "${targets[@]}" -- --quiet
