#!/usr/bin/env bash
# Builds the Python package as a wheel, installs that into a virtual environment under build/ and tests
# it: its tests, types of the package, the tests and the examples, and the examples themselves. Needs a
# release build of the program, which synthesizes the models.
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
rm -rf build/wheel
"$venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel .
"$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps build/wheel/*.whl
"$venv/bin/mypy" --strict bindings/python/hearth bindings/python/tests examples/python
"$venv/bin/pytest" -q
printf 'Tell me a story about a fox.\nGo on.\n' |
  "$venv/bin/python" examples/python/chat.py models/hearth-stories-5m.gguf >build/python_chat 2>&1
grep -q "tokens were known" build/python_chat
"$venv/bin/python" examples/python/tools.py models/hearth-stories-5m.gguf "What time is it?" \
  >build/python_tools 2>&1
grep -q '^clock({' build/python_tools
"$venv/bin/python" examples/python/stories.py models/hearth-stories-5m.gguf "The fox" "The owl" \
  >build/python_stories 2>&1
grep -q "^The fox" build/python_stories
grep -q "^The owl" build/python_stories
