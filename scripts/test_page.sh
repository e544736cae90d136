#!/usr/bin/env bash
# Uses the chat page in headless Chromium (Debian's chromium and chromium-driver; Selenium and axe-core
# from PyPI, in a virtual environment under build/). Screenshots lie in build/screenshots. Needs a
# release build.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh clients
venv=build/page-venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/python/page_requirements.txt
for test in test_page test_page_text test_page_conversations test_page_features test_page_neurons \
  test_page_models; do
  "$venv/bin/python" "tests/python/$test.py" build/release/bin/hearth \
    models/hearth-stories-5m.gguf build/screenshots
done
