#!/usr/bin/env bash
# Installs the Python package into a virtual environment under build/ and tests it: its tests, types of
# the package, the tests and the example, and the example itself. Needs a release build of the program,
# which synthesizes the models.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh clients
# The compiler's name and the options of the release build, so that ccache has what that compiled.
export CC=${CC:-cc} CXX=${CXX:-c++}
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=1
[ -z "${CI:-}" ] || export SKBUILD_CMAKE_DEFINE=HEARTH_WERROR=ON
venv=build/python-venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -r bindings/python/tests/requirements.txt
"$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps .
"$venv/bin/mypy" --strict bindings/python/hearth bindings/python/tests examples/python
"$venv/bin/pytest" -q
printf 'Tell me a story about a fox.\nGo on.\n' |
  "$venv/bin/python" examples/python/chat.py models/hearth-stories-5m.gguf >build/python_chat 2>&1
grep -q "tokens were known" build/python_chat
