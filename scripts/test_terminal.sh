#!/usr/bin/env bash
# Chats in a terminal: drives `hearth run` through tmux. Needs a release build.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh clients
python3 tests/python/test_terminal.py build/release/bin/hearth models/hearth-stories-5m.gguf
