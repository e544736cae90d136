#!/usr/bin/env bash
# Runs the tests of devices on a second implementation of OpenCL: Mesa's Rusticl, on the processor
# (llvmpipe). Six minutes. Installs it (Debian: mesa-opencl-icd) and builds the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_deps.sh devices
tests=(accel_test device_api_test device_kv_test device_matrices_test device_plan_command_test
       devices_command_test hybrid_model_test serve_device_test)
scripts/build.sh release hearth "${tests[@]}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The loader looks for drivers in this folder alone.
mkdir "$folder/vendors"
dpkg -L mesa-opencl-icd | grep '/rusticl\.icd$' | xargs -I{} cp {} "$folder/vendors/"
export OCL_ICD_VENDORS="$folder/vendors/" RUSTICL_ENABLE=llvmpipe XDG_CACHE_HOME="$folder" CI=1
build/release/bin/hearth devices --limits | tee "$folder/devices"
grep -q llvmpipe "$folder/devices" || { echo "test_rusticl.sh: no device" >&2; exit 1; }
ctest --test-dir build/release --output-on-failure -R "^($(IFS='|'; echo "${tests[*]}"))\$"
