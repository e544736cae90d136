#!/usr/bin/env bash
# Runs Hearth under Ray Serve on this machine (Ray from PyPI, in a virtual environment under build/): two
# replicas against one, a killed replica, an update under load. Needs a release build. Not in CI: it takes
# three minutes and 500 MB of packages.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/ray-venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -r deploy/ray/requirements.txt
# Workers import the deployment by its name.
PYTHONPATH=$PWD/deploy/ray "$venv/bin/python" tests/python/test_ray.py build/release/bin/hearth models/hearth-stories-5m.gguf "$@"
