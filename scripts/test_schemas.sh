#!/usr/bin/env bash
# Random schemas, as pydantic, zod and OpenAPI generators write them: test_schemas.sh [COUNT] [SEED].
# Most must become grammars, and whatever a grammar writes must be valid for jsonschema (from PyPI,
# in a virtual environment of its own under build/). Needs a release build.
set -euo pipefail
cd "$(dirname "$0")/.."
count=${1:-500}
seed=${2:-1}
scripts/build.sh release schema_walk
venv=build/schemas-venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/python/schema_requirements.txt
"$venv/bin/python" tests/python/test_schemas.py "$(find build/release -type f -name schema_walk)" \
  "$count" "$seed"
