#!/usr/bin/env bash
# Builds the micro benchmarks and runs them: bench.sh [--isa NAME] [--benchmark_filter=REGEX ...].
# Writes build/micro.json, medians of five repetitions; the table goes to the terminal. All of one
# instruction set take about two minutes (docs/benchmarks.md).
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh bench
HEARTH_BENCH=1 scripts/build.sh release hearth_micro
build/release/bin/hearth_micro --benchmark_out=build/micro.json --benchmark_out_format=json \
  --benchmark_context=commit="$(git describe --always --dirty)" \
  --benchmark_min_time=0.1 --benchmark_repetitions=5 --benchmark_report_aggregates_only=true "$@"
