#!/usr/bin/env bash
# Drives the server with libraries that agents are built with (from PyPI, in a virtual environment of
# its own under build/): each completes a call of a tool and a structured answer. Needs a release build
# and some 500 MB of disk; not in CI. test_clients.sh MODEL.gguf: a chat model with a context of 4,096
# tokens or more.
set -euo pipefail
cd "$(dirname "$0")/.."
model=${1:?test_clients.sh: give a chat model (GGUF), such as SmolLM2-135M-Instruct}
scripts/install_deps.sh clients
venv=build/clients-venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/python/clients_requirements.txt
"$venv/bin/python" tests/python/test_clients.py build/release/bin/hearth "$model"
