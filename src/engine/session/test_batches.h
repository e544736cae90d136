// Requests of batches and what they told, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/test_data.h"
#include "engine/session/batch_scheduler.h"

namespace hearth {

inline std::unique_ptr<Engine> LoadForBatches(const std::string& name, int64_t sequences,
                                              int64_t context = 0) {
  EngineOptions options;
  options.kv_sequences = sequences;
  options.context = context;
  options.threads = 2;
  return Engine::Load(SourcePath("tests/goldens/") + name + ".gguf", options);
}

inline GenerateOptions Sampled(uint64_t seed, int64_t tokens) {
  GenerateOptions options;
  options.max_tokens = tokens;
  options.sampling.seed = seed;
  options.sampling.logit_bias = {{1, -1e9f}, {2, -1e9f}};  // never end early
  return options;
}

inline std::vector<TokenId> RandomTokens(std::mt19937& random, int64_t count) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(3 + random() % 250));
  return tokens;
}

// What a request told.
struct Told {
  std::string text;
  int tokens = 0;
  std::optional<BatchOutcome> outcome;
};

inline BatchRequest MakeRequest(std::vector<TokenId> prompt, const GenerateOptions& options,
                                Told& told) {
  BatchRequest request;
  request.prompt = std::move(prompt);
  request.generate = options;
  request.on_token = [&told](std::string_view text, const std::vector<ScoredToken>&) {
    EXPECT_FALSE(told.outcome.has_value()) << "nothing comes after the end";
    told.text += text;
    ++told.tokens;
  };
  request.on_done = [&told](const BatchOutcome& outcome) {
    EXPECT_FALSE(told.outcome.has_value()) << "a request ends once";
    told.outcome = outcome;
  };
  return request;
}

inline void RunAll(BatchScheduler& scheduler) {
  for (int step = 0; step < 10000 && !scheduler.is_idle(); ++step) scheduler.Step();
  ASSERT_TRUE(scheduler.is_idle());
}

}  // namespace hearth
