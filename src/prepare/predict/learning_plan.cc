#include "prepare/predict/learning_plan.h"

#include <algorithm>

#include "engine/load/engine_plan.h"
#include "prepare/predict/predictor_memory.h"

namespace hearth {
namespace {

// Beside predictors: profile, tokens and what trying predictors takes.
constexpr uint64_t kOtherBytes = uint64_t{32} << 20;
// Where the model is streamed, samples of several layers take at most one part in so many of the
// limit: what they take is missing for the model.
constexpr uint64_t kSampleShare = 8;
// Ranks to be content with, where an even share of the bytes would have room for more: twice what
// planted sparsity needs, and what it needs (docs/decisions/0006-predictor-maker.md).
constexpr int64_t kGoodRank = 512;
constexpr int64_t kModestRank = 256;

struct Way {
  int64_t context;
  int64_t tokens;
  int64_t rank;
};

// Of one way, with samples of as many layers as `sample_bytes` has room for.
uint64_t ReservedBytes(const PredictorMemory& memory, int64_t rank, uint64_t sample_bytes) {
  const uint64_t making =
      (rank > 0 ? memory.WorkBytes(rank) : 0) + memory.SampleBytes(sample_bytes);
  return kOtherBytes + memory.KeptBytes(rank) + std::max(making, memory.KeptBytes(rank));
}

}  // namespace

LearningPlan PlanLearning(const GgufFile& file, EngineOptions engine,
                          const PredictorOptions& options, int64_t text_tokens) {
  LoadPlan load = PlanLoad(file);
  DescribeWeights(load);
  const uint64_t copies = PredictorMemory::CopiedBytes(load.weights->main_layer());
  const int64_t context = std::min(load.spec.context_length, kDefaultContext);
  const int64_t tokens = std::min(DefaultPredictorTokens(load.spec), text_tokens);
  const int64_t few = std::min(kFewPredictorTokens, tokens);
  const auto memory_for = [&](int64_t count) {
    return PredictorMemory(load.spec, options, load.weights_bytes, copies, count);
  };
  const int64_t rank = memory_for(tokens).EvenRank();
  const Way ways[] = {{context, tokens, rank},
                      {1024, tokens, std::min(rank, kGoodRank)},
                      {1024, std::max(tokens / 2, few), std::min(rank, kGoodRank)},
                      {512, few, std::min(rank, kModestRank)}};
  EnginePlan plan;
  for (const Way& way : ways) {
    const PredictorMemory memory = memory_for(way.tokens);
    LearningPlan out = {.context = std::min(way.context, context),
                        .max_tokens = way.tokens,
                        .takes_fewer_tokens = way.tokens < tokens};
    engine.context = out.context;
    const auto fits = [&](uint64_t sample_bytes) {
      out.sample_bytes = memory.SampleBytes(sample_bytes);
      out.reserved_bytes = ReservedBytes(memory, way.rank, sample_bytes);
      engine.reserved_bytes = out.reserved_bytes + LearningPlan::kDriftBytes;
      plan = PlanEngine(file, engine);
      return plan.needed_bytes() <= plan.limit_bytes;
    };
    if (fits(options.sample_bytes) && !plan.is_streamed()) return out;
    const uint64_t share = std::min(options.sample_bytes, plan.limit_bytes / kSampleShare);
    if (fits(share) || fits(0)) return out;
  }
  CheckBudget(plan, file.path());
  return {};  // which the check prevents
}

}  // namespace hearth
