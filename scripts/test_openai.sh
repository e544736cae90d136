#!/usr/bin/env bash
# Drives the server with the official clients of the OpenAI API and of the Messages API (from PyPI, in a
# virtual environment of its own under build/). Needs a release build.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh clients
venv=build/openai-venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/python/requirements.txt
for test in test_openai_client test_doors; do
  "$venv/bin/python" "tests/python/$test.py" build/release/bin/hearth models/hearth-stories-5m.gguf
done
