#!/usr/bin/env bash
# Installs a release build into a folder of its own: its manual pages must be clean, its completions lie
# where shells look, and the examples build against it alone, with CMake and with pkg-config.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
model=$PWD/models/hearth-stories-5m.gguf
cmake --install build/release --prefix "$root/installed" >/dev/null
# scripts/demo.sh builds no more than this target: it must have the program, the library and the pages.
ninja -C build/release -t inputs hearth_installable >"$root/inputs"
for needed in bin/hearth src/api/libhearth.so packaging/man_pages.sh; do
  grep -q "$needed" "$root/inputs"
done
cp -r examples "$root/examples"
cd "$root"
cmake -S examples -B built -DCMAKE_PREFIX_PATH="$root/installed" >/dev/null
cmake --build built >/dev/null
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$root/installed" -name hearth.pc)")
libraries=$(dirname "$PKG_CONFIG_PATH")
# shellcheck disable=SC2046
for example in story tools json; do
  cc -Wall -Wextra -Werror -std=c99 -pedantic "examples/$example.c" -o "$example" \
    $(pkg-config --cflags --libs hearth)
done
export LD_LIBRARY_PATH=$libraries
./story "$model" "Once upon a time" >by_pkg_config
built/story "$model" "Once upon a time" >by_cmake
cmp by_pkg_config by_cmake
./tools "$model" "Tell me a story about a fox." >by_tools
grep -q "[a-z]" by_tools
./json "$model" "A fox ran home." >by_json 2>told
grep -q '"animal":.*"is_home":' by_json
grep -q "^prompt: " told
printf 'Tell me a story about a fox.\nGo on.\n' | built/chat "$model" >by_chat
grep -q "tokens were known" by_chat
grep -q "^Once upon a time" by_cmake
nm -D --defined-only "$libraries/libhearth.so" | awk '{print $3}' | c++filt >symbols
if grep -v -e '^hearth_' -e 'hearth::api::' symbols; then
  echo "the library shows more than its interface" >&2
  exit 1
fi
"$root/installed/bin/hearth" --version

# A page for the program and one for every command, without a complaint of roff.
share=$root/installed/share
for command in "" $("$root/installed/bin/hearth" help --table | awk -F '\t' '$1 == "command" { print $3 }'); do
  [ "$command" = help ] && continue
  page=$share/man/man1/hearth${command:+-$command}.1
  groff -man -ww -Tascii -P-cbou "$page" >shown 2>complaints
  if [ -s complaints ]; then
    cat complaints >&2
    exit 1
  fi
  grep -q "^SYNOPSIS" shown
  if [ -n "$command" ]; then grep -q "hearth $command" shown; else grep -q "hearth-serve(1)" shown; fi
done
groff -man -Tascii -P-cbou "$share/man/man1/hearth-serve.1" | grep -q -e "^ *--verbose"
# Where bash, zsh and fish look below a prefix that is in XDG_DATA_DIRS, or /usr/local.
test -f "$share/zsh/site-functions/_hearth"
test -f "$share/fish/vendor_completions.d/hearth.fish"
bash -c '
  PATH=$1/bin:$PATH
  _init_completion() { cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD; }
  source "$1/share/bash-completion/completions/hearth"
  COMP_WORDS=(hearth se) COMP_CWORD=1
  _hearth hearth se hearth
  [ "${COMPREPLY[*]}" = serve ]' - "$root/installed"
echo "the installed library works"
