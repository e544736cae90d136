#!/usr/bin/env bash
# Builds what shares memory between threads with the thread sanitizer, and runs its tests:
# test_threads.sh [TEST...]. Prints what it reports and fails then. Not part of .ci/run: on two
# processors it takes a quarter of an hour.
set -euo pipefail
cd "$(dirname "$0")/.."
tests=("$@")
[ "${#tests[@]}" -gt 0 ] || tests=(base_test ops_test cache_test storage_test pipeline_test engine_test
  api_test serve_test serve_command_test serve_models_test serve_sessions_test serve_streamed_test
  saved_sessions_test load_test)
scripts/build.sh tsan hearth "${tests[@]}"
reports=$PWD/build/tsan/report
rm -f "$reports".*
export TSAN_OPTIONS="suppressions=$PWD/tests/thread_sanitizer.supp log_path=$reports history_size=4"
failed=0
# GCC 12's sanitizer cannot do with addresses laid out as much at random as newer kernels do it.
setarch -R ctest --preset tsan -R "^($(IFS='|'; echo "${tests[*]}"))\$" || failed=1
for report in "$reports".*; do
  [ -e "$report" ] || continue
  cat "$report" >&2
  grep -q WARNING "$report" && failed=1
done
exit "$failed"
