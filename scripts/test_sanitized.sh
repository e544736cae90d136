#!/usr/bin/env bash
# Runs tests under clang's address and undefined sanitizers: test_sanitized.sh [--quick | TEST...]. Without
# names it takes all that read what strangers send: files, texts, requests; --quick: those of files and
# texts, which take half as long to build, without the cases whose texts are long. It shares its build with the
# fuzzers, which leaves the vectorized kernels unchecked; the preset asan-ubsan checks them too
# (scripts/nightly.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
tests=("$@")
if [ "${1:-}" = --quick ]; then
  tests=(base_test tensor_test format_test text_tokenizer_test text_grammar_test text_jinja_test
    text_tools_test text_chat_test model_test)
  export GTEST_FILTER='-*Books*:*HugeInputs*:*LongTexts*:*LinearTime*'
fi
[ "${#tests[@]}" -gt 0 ] || tests=(base_test tensor_test storage_test plan_test cache_test format_test
  kv_test text_tokenizer_test text_grammar_test text_jinja_test text_tools_test text_chat_test model_test
  sparsity_test serve_test)
scripts/build.sh fuzz "${tests[@]}"
ctest --preset fuzz -j "$(nproc)" -R "^($(IFS='|'; echo "${tests[*]}"))\$"
