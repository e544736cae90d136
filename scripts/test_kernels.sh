#!/usr/bin/env bash
# Runs every kernel of devices under Oclgrind, which interprets them and finds data races between
# work-items, accesses outside of buffers and values that nobody wrote. Fails on any finding.
# Needs scripts/install_deps.sh ci; builds accel_test where that has not been done.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh release accel_test
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The loader looks for drivers in this folder alone.
mkdir "$folder/vendors"
library=$(dpkg -L oclgrind | grep 'liboclgrind-rt-icd\.so$')
echo "$library" >"$folder/vendors/oclgrind.icd"
findings=$folder/findings
# A program that cannot be built is a finding to Oclgrind, and a test makes one.
OCL_ICD_VENDORS=$folder/vendors/ XDG_CACHE_HOME=$folder CI=1 HEARTH_SOURCE=$PWD \
  OCLGRIND_DATA_RACES=1 OCLGRIND_UNINITIALIZED=1 OCLGRIND_CHECK_API=1 OCLGRIND_LOG=$findings \
  build/release/bin/accel_test --gtest_filter="-DeviceFaults.*"
if [ -s "$findings" ]; then
  echo "test_kernels.sh: Oclgrind found:" >&2
  head -n 60 "$findings" >&2
  exit 1
fi
echo "test_kernels.sh: no finding"
