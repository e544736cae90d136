#!/usr/bin/env bash
# From a fresh Debian 12 to tested: installs what the build needs, builds, runs all tests.
# Tests of the shared data look in $HEARTH_SHARED (default ../shared) and are skipped, with a
# notice, where it is missing; in CI that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh build
scripts/build.sh release
ctest --preset release -j "$(nproc)"
