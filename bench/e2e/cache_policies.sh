#!/bin/sh
# Hit rates of every cache policy on recorded accesses: the tables of
# docs/decisions/0008-cache-policy.md. Takes some minutes and 600 MB in FOLDER, which is made and kept.
#
#   bench/e2e/cache_policies.sh FOLDER [path of hearth]
set -eu
folder=${1:?usage: bench/e2e/cache_policies.sh FOLDER [HEARTH]}
hearth=${2:-build/release/bin/hearth}
shared=${HEARTH_SHARED:-../shared}
mkdir -p "$folder"

shape() { # NAME WIDTH NEURONS LAYERS HEADS ARCH EXPERTS USED
  printf '{"name": "%s", "arch": "%s", "hidden_size": %d, "intermediate_size": %d,
  "num_layers": %d, "num_heads": %d, "num_kv_heads": %d, "head_dim": 64, "vocab_size": 32064,
  "context_length": 4096, "rope_base": 10000, "activation": "drelu", "num_experts": %d,
  "num_experts_per_token": %d}\n' "$1" "$6" "$2" "$3" "$4" "$5" $(($5 / 4)) "$7" "$8"
}
shape bamboo-small 1024 4096 16 16 llama 0 0 > "$folder/small.json"
shape turbo-small 512 2048 8 8 mixtral 8 2 > "$folder/experts.json"

"$hearth" synth --shape "$folder/small.json" -o "$folder/default.gguf"
"$hearth" synth --shape "$folder/small.json" --skew 0.43 --locality low -o "$folder/hard.gguf"
"$hearth" synth --shape "$folder/experts.json" -o "$folder/experts.gguf"
for name in default hard experts; do
  "$hearth" profile "$folder/$name.gguf" --walk 1024 --trace "$folder/$name.trace" > /dev/null
done
"$hearth" profile models/hearth-stories-5m.gguf --text "$shared/data/text/tinystories_sample.txt" \
  --trace "$folder/stories.trace" > /dev/null

for trace in "$shared"/data/traces/*.route.csv "$folder"/*.trace; do
  name=$(basename "$trace")
  echo "== $name"
  "$hearth" bench --trace "$trace" --capacity 5%,10%,15%,20%,30%,40%,50%,60% \
    --plot "$folder/$name.svg" | tee "$folder/$name.txt"
done
