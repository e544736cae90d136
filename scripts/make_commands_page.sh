#!/usr/bin/env bash
# Writes docs/commands.md from what the program says of itself: make_commands_page.sh; with --check it
# only says whether the page is that, and fails where it is not. Needs a release build.
set -euo pipefail
cd "$(dirname "$0")/.."
hearth=build/release/bin/hearth
page=docs/commands.md

# Pipes would end a cell of a table, and words in angle brackets be taken for HTML.
cells() { sed -e 's/|/\\|/g' -e 's/</\&lt;/g' -e 's/>/\&gt;/g'; }

write() {
  echo "# Commands"
  echo
  echo "Made by \`scripts/make_commands_page.sh\` from \`hearth help\`. Sizes take K, M, G (powers of 1024). Exit codes:"
  echo "0 done, 1 failed, 2 wrong usage."
  "$hearth" help --table | awk -F '\t' '$1 == "command" && $3 != "help" { print $3 }' | while read -r command; do
    "$hearth" help --table "$command" | cells | awk -F '\t' '
      $1 == "usage" { printf "\n## %s\n\n%s.\n\n    %s\n", command, $5, $3; next }
      $1 == "example" { examples = examples "    " $3 "\n"; next }
      $2 != group { group = $2; printf "\n| %s | |\n|---|---|\n", group }
      { printf "| `%s%s` | %s |\n", $3, ($4 == "" ? "" : " " $4), $5 }
      END { if (examples != "") printf "\nFor example\n\n%s", examples }' command="$command" |
      sed -E '/^\| `/s/\\\|/\\|/g'
  done
}

if [ "${1:-}" = --check ]; then
  write | diff -u "$page" - || { echo "$page is not what the program says: scripts/make_commands_page.sh" >&2; exit 1; }
else
  write >"$page"
fi
