#!/usr/bin/env bash
# Installs a release build into a folder of its own and builds the examples against that alone, with
# CMake and with pkg-config.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
model=$PWD/models/hearth-stories-5m.gguf
cmake --install build/release --prefix "$root/installed" >/dev/null
cp -r examples "$root/examples"
cd "$root"
cmake -S examples -B built -DCMAKE_PREFIX_PATH="$root/installed" >/dev/null
cmake --build built >/dev/null
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$root/installed" -name hearth.pc)")
libraries=$(dirname "$PKG_CONFIG_PATH")
# shellcheck disable=SC2046
cc -Wall -Wextra -Werror -std=c99 -pedantic examples/story.c -o story \
  $(pkg-config --cflags --libs hearth)
export LD_LIBRARY_PATH=$libraries
./story "$model" "Once upon a time" >by_pkg_config
built/story "$model" "Once upon a time" >by_cmake
cmp by_pkg_config by_cmake
printf 'Tell me a story about a fox.\nGo on.\n' | built/chat "$model" >by_chat
grep -q "tokens were known" by_chat
grep -q "^Once upon a time" by_cmake
nm -D --defined-only "$libraries/libhearth.so" | awk '{print $3}' | c++filt >symbols
if grep -v -e '^hearth_' -e 'hearth::api::' symbols; then
  echo "the library shows more than its interface" >&2
  exit 1
fi
"$root/installed/bin/hearth" --version
echo "the installed library works"
