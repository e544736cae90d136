#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for so long, one per processor at a time:
# fuzz.sh [SECONDS [TARGET...]]; all targets where none is named. New inputs stay in build/fuzz/corpus-*;
# a crash is printed and fails the script.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-30}
shared=${HEARTH_SHARED:-../shared}
shift || true
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || targets=(adapter_fuzz gguf_fuzz grammar_fuzz packed_fuzz request_fuzz safetensors_fuzz
  session_fuzz template_fuzz tokenizer_fuzz)
scripts/build.sh fuzz "${targets[@]}"
# Long texts make the tokenizers slow under sanitizers and reach nothing that short ones do not.
declare -A longest=([adapter_fuzz]=8192 [gguf_fuzz]=65536 [grammar_fuzz]=2048 [packed_fuzz]=131072
  [request_fuzz]=4096 [safetensors_fuzz]=4096 [session_fuzz]=8192 [template_fuzz]=4096 [tokenizer_fuzz]=4096)
fuzz() {
  local target=$1 corpus=build/fuzz/corpus-$1 log=build/fuzz/$1.log seeds=() seed
  mkdir -p "$corpus"
  for seed in "$shared/data/fuzz/gguf" tests/goldens fuzz/seeds; do
    [ -d "$seed" ] && seeds+=("$seed")
  done
  if ! "build/fuzz/bin/$target" -max_total_time="$seconds" -max_len="${longest[$target]}" -timeout=20 \
    -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 -artifact_prefix=build/fuzz/ \
    "$corpus" "${seeds[@]}" >"$log" 2>&1; then
    cat "$log" >&2
    echo "$target failed" >&2
    return 1
  fi
  echo "$target: $(grep number_of_executed_units "$log")"
}
echo "fuzzing ${#targets[@]} targets, $seconds s each"
failed=0
for target in "${targets[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || failed=1; done
  fuzz "$target" &
done
while [ -n "$(jobs -p)" ]; do wait -n || failed=1; done
exit "$failed"
