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
dpkg -L oclgrind | grep 'liboclgrind-rt-icd\.so$' >"$folder/vendors/oclgrind.icd"
findings=$folder/findings
status=0

#   interpret FILTER [VARIABLE=1...]: runs tests with these checks besides that of bounds
interpret() {
  local filter=$1
  shift
  env "$@" OCL_ICD_VENDORS="$folder/vendors/" XDG_CACHE_HOME="$folder" CI=1 HEARTH_SOURCE="$PWD" \
    OCLGRIND_CHECK_API=1 OCLGRIND_DATA_RACES=1 OCLGRIND_LOG="$findings" \
    build/release/bin/accel_test --gtest_filter="$filter" || status=1
  [ ! -s "$findings" ] || { echo "test_kernels.sh: Oclgrind found:" >&2; head -n 60 "$findings" >&2; exit 1; }
}

# A program that cannot be built is a finding to Oclgrind, and a test makes one.
interpret '-DeviceFaults.*:NeuronKernels.*' OCLGRIND_UNINITIALIZED=1
# These kernels read what an earlier one wrote, which Oclgrind 21.10 reports as never written.
interpret 'NeuronKernels.*'
[ "$status" -eq 0 ] || exit "$status"
echo "test_kernels.sh: no finding"
