#!/usr/bin/env bash
# Configures and builds a preset: build.sh PRESET [TARGET...]. In CI the release build has warnings
# as errors (GCC's other builds warn of what is not there when sanitizers change the code) and the
# micro benchmarks, which HEARTH_BENCH=1 adds elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
# So that builds in other folders (scripts/test_python.sh) find what this one compiled.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=1
targets=()
for target in "$@"; do targets+=(--target "$target"); done
options=()
[ -n "${CI:-}" ] && [ "$preset" = release ] && options=(-DHEARTH_WERROR=ON -DHEARTH_BENCH=ON)
[ -n "${HEARTH_BENCH:-}" ] && options+=(-DHEARTH_BENCH=ON)
cmake --preset "$preset" "${options[@]}" >/dev/null
# A person sees how far it is; a pipe gets nothing but errors.
quiet=(-- --quiet)
[ -t 1 ] && quiet=()
cmake --build --preset "$preset" "${targets[@]}" "${quiet[@]}"
