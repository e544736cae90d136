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

# kernel_tests FILTER [VARIABLE=VALUE ...]
kernel_tests() {
  env OCL_ICD_VENDORS="$folder/vendors/" XDG_CACHE_HOME="$folder" CI=1 HEARTH_SOURCE="$PWD" \
    HEARTH_INTERPRETED=1 OCLGRIND_LOG="$findings.$((++runs))" \
    OCLGRIND_CHECK_API=1 OCLGRIND_DATA_RACES=1 OCLGRIND_UNINITIALIZED=1 "${@:2}" \
    build/release/bin/accel_test --gtest_filter="$1" || status=1
}

# A program that cannot be built is a finding to Oclgrind too, and DeviceFaults makes one.
# Oclgrind 21.10 does not know LLVM's instruction `freeze`, which the optimizer writes into
# attention's kernels, and crashes on others that are not optimized.
status=0
runs=0
kernel_tests '-DeviceFaults.*:AttentionKernels.*'
kernel_tests 'AttentionKernels.*' OCLGRIND_BUILD_OPTIONS=-O0
cat "$findings".* >"$findings"
if [ -s "$findings" ]; then
  echo "test_kernels.sh: Oclgrind found:" >&2
  head -n 60 "$findings" >&2
  status=1
fi
[ "$status" -ne 0 ] || echo "test_kernels.sh: no finding"
exit "$status"
