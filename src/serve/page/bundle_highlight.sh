#!/bin/sh
# Writes highlight.js with chosen languages as one script: bundle_highlight.sh FOLDER LANGUAGE...
# FOLDER is lib/ of Debian's node-highlight.js. The whole library, with 185 languages, is ten times as
# large.
set -eu
folder=$1
shift
# Their modules are written for Node.js: each gets a `module` of its own.
module() { cat "$1"; printf '\nreturn module.exports;\n})({})'; }
printf 'const hljs = (module => {\n'
module "$folder/highlight.js"
printf ';\n'
for language in "$@"; do
  printf 'hljs.registerLanguage("%s", (module => {\n' "$language"
  module "$folder/languages/$language.js"
  printf ');\n'
done
