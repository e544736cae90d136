#!/usr/bin/env bash
# From a fresh Debian 12 to a story told by a model that does not fit into its memory: installs what
# the build needs, builds, packs the model of this repository neuron by neuron, and runs it twice:
# in memory, and with most of its FFNs outside. Both tell the same story.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh build
scripts/build.sh release hearth_installable
model=models/hearth-stories-5m.gguf
hearth=build/release/bin/hearth
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packed=$work/packed.gguf
echo
"$hearth" pack "$model" -o "$packed" --text models/hearth-stories.txt --mode predicted
options=(--raw -p "Once upon a time" -n 300 --temp 0.6 --seed "${1:-1}" --verbose)

echo
echo "In memory:"
"$hearth" run "$packed" "${options[@]}" 2>&1 | tee "$work/in_memory"

# Half a MiB less than that took. Such small neurons take more room in a file, and in the slots that
# hold what is read of it, than side by side in memory: about a quarter of them fits into the rest.
whole=$(sed -n 's/^ *sum *\([0-9.]*\) MiB of .*/\1/p' "$work/in_memory")
memory=$(awk -v whole="$whole" 'BEGIN { printf "%.1fM", whole - 0.5 }')
echo
echo "With most of its FFNs outside memory (--memory $memory):"
"$hearth" run "$packed" "${options[@]}" --memory "$memory"
