#!/usr/bin/env bash
# What takes too long for every change: run it once before a larger change is called done.
#   nightly.sh            all steps, about three hours on two cores
#   nightly.sh STEP...    some of them
#   nightly.sh --list     their names
# A step that fails does not stop the others. Each one's log lies in build/nightly, with its time in
# build/nightly/summary.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A commands=(
  [tests]="scripts/test.sh"
  [sanitizers]="scripts/build.sh asan-ubsan fast_tests && ctest --preset asan-ubsan -j $(nproc)"
  [arm]="scripts/build.sh arm64 && ctest --preset arm64"
  [threads]="scripts/test_threads.sh"
  [schedules]="build/release/bin/pipeline_test --gtest_filter='StreamStress*' --gtest_shuffle --gtest_repeat=20"
  [fuzz]="scripts/fuzz.sh 600"
  [schemas]="scripts/test_schemas.sh 10000"
  [rusticl]="scripts/test_rusticl.sh"
  [hostile]="scripts/test_hostile.sh"
  [kernels]="scripts/test_kernels.sh"
  [soak]="scripts/soak.sh 360"
  [packages]="scripts/test_deb.sh"
  [container]="scripts/test_container.sh"
  [ray]="scripts/test_ray.sh"
)
# In the order in which they run; the first one builds what most others use.
steps=(tests schedules schemas kernels rusticl hostile soak arm sanitizers threads fuzz packages container ray)

[ "${1:-}" != --list ] || { printf '%s\n' "${steps[@]}"; exit 0; }
chosen=("$@")
[ "${#chosen[@]}" -gt 0 ] || chosen=("${steps[@]}")
for step in "${chosen[@]}"; do
  [ -n "${commands[$step]:-}" ] || { echo "nightly.sh: no step '$step' (nightly.sh --list)" >&2; exit 2; }
done

scripts/install_deps.sh ci
logs=build/nightly
mkdir -p "$logs"
: >"$logs/summary"
failed=0
for step in "${chosen[@]}"; do
  begin=$SECONDS
  result=passed
  bash -c "set -euo pipefail; ${commands[$step]}" >"$logs/$step.log" 2>&1 || { result=FAILED; failed=1; }
  printf '%-12s %s in %d s\n' "$step" "$result" $((SECONDS - begin)) | tee -a "$logs/summary"
  [ "$result" = passed ] || tail -n 40 "$logs/$step.log"
done
exit "$failed"
