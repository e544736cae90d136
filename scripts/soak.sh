#!/usr/bin/env bash
# A server under 15 kinds of requests of 8 clients for a while: soak.sh [SECONDS] (360). Fails on a
# wrong answer, and where it grows. Needs a release build.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 tests/python/soak.py build/release/bin/hearth models/hearth-stories-5m.gguf "${1:-360}"
