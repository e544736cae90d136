#!/usr/bin/env bash
# From a fresh Debian 12 to a story told by a model that does not fit into its memory: installs what
# the build needs, builds, packs the model of this repository neuron by neuron, and runs it twice:
# in memory, and with most of its FFNs outside. Both tell the same story.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh build
scripts/build.sh release hearth
model=models/hearth-stories-5m.gguf
hearth=build/release/bin/hearth
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packed=$work/packed.gguf
echo
"$hearth" pack "$model" -o "$packed" --text models/hearth-stories.txt --mode predicted
options=(-p "Once upon a time" -n 300 --temp 0.6 --seed "${1:-1}" --verbose)

echo
echo "In memory:"
"$hearth" run "$packed" "${options[@]}"

# The refusal of too little memory names the least that would do.
least=$({ "$hearth" run "$packed" -p x --memory 1M 2>&1 || true; } |
  sed -n 's/.*the smallest that can is \([0-9]*\)M.*/\1/p')
echo
echo "In the least memory that it can run in, most of its FFNs outside (--memory ${least}M):"
"$hearth" run "$packed" "${options[@]}" --memory "${least}M"
