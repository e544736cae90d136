#!/usr/bin/env bash
# Runs every kernel of devices under Oclgrind, which interprets them and finds data races between
# work-items, accesses outside of buffers and values that nobody wrote. Fails on any finding and on
# a test that fails. Needs scripts/install_deps.sh ci; builds accel_test.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh release accel_test
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The loader looks for drivers in this folder alone.
mkdir "$folder/vendors"
dpkg -L oclgrind | grep 'liboclgrind-rt-icd\.so$' >"$folder/vendors/oclgrind.icd"
findings=$folder/findings

# A program that cannot be built is a finding to Oclgrind too, and DeviceFaults makes one.
status=0
OCL_ICD_VENDORS="$folder/vendors/" XDG_CACHE_HOME="$folder" CI=1 HEARTH_SOURCE="$PWD" \
  OCLGRIND_CHECK_API=1 OCLGRIND_DATA_RACES=1 OCLGRIND_UNINITIALIZED=1 OCLGRIND_LOG="$findings" \
  build/release/bin/accel_test --gtest_filter='-DeviceFaults.*' || status=1
if [ -s "$findings" ]; then
  echo "test_kernels.sh: Oclgrind found:" >&2
  head -n 60 "$findings" >&2
  status=1
fi
[ "$status" -ne 0 ] || echo "test_kernels.sh: no finding"
exit "$status"
