#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each: fuzz.sh [SECONDS]. New inputs stay in
# build/fuzz/corpus-*; a crash is printed and fails the script.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-30}
shared=${HEARTH_SHARED:-../shared}
targets=(gguf_fuzz grammar_fuzz packed_fuzz request_fuzz safetensors_fuzz template_fuzz tokenizer_fuzz)
scripts/build.sh fuzz "${targets[@]}"
# Long texts make the tokenizers slow under sanitizers and reach nothing that short ones do not.
declare -A longest=([gguf_fuzz]=65536 [grammar_fuzz]=2048 [packed_fuzz]=131072 [request_fuzz]=4096
  [safetensors_fuzz]=4096 [template_fuzz]=4096 [tokenizer_fuzz]=4096)
for target in "${targets[@]}"; do
  corpus=build/fuzz/corpus-$target
  mkdir -p "$corpus"
  seeds=()
  for seed in "$shared/data/fuzz/gguf" tests/goldens fuzz/seeds; do
    [ -d "$seed" ] && seeds+=("$seed")
  done
  echo "fuzzing $target for $seconds s"
  log=build/fuzz/$target.log
  if ! "build/fuzz/bin/$target" -max_total_time="$seconds" -max_len="${longest[$target]}" -timeout=20 \
    -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 -artifact_prefix=build/fuzz/ \
    "$corpus" "${seeds[@]}" >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
  fi
  grep number_of_executed_units "$log"
done
