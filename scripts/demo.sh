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
beginning="Once upon a time"
options=(--raw -p "$beginning" -n 300 --temp 0.6 --seed "${1:-1}" --verbose)
# A program that writes to a pipe does not repeat the prompt: the story begins with it here, and what
# is said about it comes after.
tell() {
  printf '%s' "$beginning"
  "$hearth" run "$packed" "${options[@]}" "$@" 2>"$work/notes" | cat || { cat "$work/notes" >&2; exit 1; }
  echo
  cat "$work/notes"
}

echo
echo "In memory:"
tell

# Shorter passes through a prompt give back up to 5 MiB of what that took; for less, FFNs have to leave. Such small
# neurons take more room in a file, and in the slots that hold what is read of it, than side by side in memory:
# about a third of them fits into the rest.
whole=$(sed -n 's/^ *sum *\([0-9.]*\) MiB of .*/\1/p' "$work/notes")
memory=$(awk -v whole="$whole" 'BEGIN { printf "%.1fM", whole - 7 }')
echo
echo "With most of its FFNs outside memory (--memory $memory):"
tell --memory "$memory"
