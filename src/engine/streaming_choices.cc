#include "engine/streaming_choices.h"

#include <algorithm>
#include <vector>

#include "cache/cache_policy.h"
#include "engine/engine.h"
#include "engine/load/matrix_streaming.h"
#include "storage/async/async_reader.h"

namespace hearth {
namespace {

template <typename Value>
std::string NamesOf(std::span<const Value> values, const char* (*name)(Value)) {
  std::string names;
  for (const Value value : values) names += (names.empty() ? "" : "|") + std::string(name(value));
  return names;
}

bool TakePipeline(StreamingOptions& options, const std::string& word) {
  const auto kind = PipelineFromName(word);
  options.pipeline.pipeline = kind.value_or(PipelineKind::kCluster);
  return kind.has_value();
}

bool TakeReads(StreamingOptions& options, const std::string& word) {
  const bool in_pieces = word == "pieces" || word == "gates-first-pieces";
  options.pipeline.gates_first = word == "gates-first" || word == "gates-first-pieces";
  options.pipeline.piece_bytes = in_pieces ? kNeuronPieceBytes : 0;
  return in_pieces || word == "whole" || word == "gates-first";
}

bool TakeIoThread(StreamingOptions& options, const std::string& word) {
  const auto thread = IoThreadFromName(word);
  options.pipeline.io_thread = thread.value_or(IoThread::kShared);
  return thread.has_value();
}

bool TakeIo(StreamingOptions& options, const std::string& word) {
  options.io.backend = word == "io_uring" ? IoBackend::kIoUring
                       : word == "pread"  ? IoBackend::kPread
                                          : IoBackend::kAuto;
  return word == "auto" || word == "io_uring" || word == "pread";
}

bool TakeCachePolicy(StreamingOptions& options, const std::string& word) {
  const auto kind = CachePolicyFromName(word);
  options.pipeline.policy = kind.value_or(options.pipeline.policy);
  return kind.has_value();
}

bool TakeLookahead(StreamingOptions& options, const std::string& word) {
  const auto lookahead = LookaheadFromName(word);
  options.pipeline.lookahead = lookahead.value_or(Lookahead::kAuto);
  return lookahead.has_value();
}

// Why a setting does nothing for a packed model.
std::string IdleForNeurons(const Engine& engine, const std::string& field) {
  if (field == "lookahead" && !CanLookAhead(engine.model().spec(), engine.mode())) {
    return "only predictors of layers without experts can be asked ahead of time";
  }
  const StreamOptions& options = engine.streamed()->options();
  const bool is_own = field == "io_thread" && options.io_thread == IoThread::kOwn;
  if (field != "reads" && !is_own) return "";
  if (engine.mode() == FfnMode::kDense) return "in the dense mode every neuron is needed, in order";
  if (is_own && engine.threads() == 1) return "there is no second thread to compute meanwhile";
  const bool reads_all = engine.mode() == FfnMode::kGated && !engine.streamed()->finds_firing();
  if (reads_all && (is_own || options.piece_bytes > 0)) {
    return "all neurons are read in order, to see which gates fire";
  }
  if (!is_own && engine.streamed()->store().plan().holds_gates && options.gates_first) {
    return "all gates are in memory";
  }
  return "";
}

// The same for one whose matrices or experts are read whole.
std::string IdleForMatrices(const StreamedMatrices& matrices, const std::string& field) {
  if (field == "io" || field == "io_device") return "";
  if (field != "cache_policy") return "it is about single neurons, and the model is not packed";
  if (matrices.is_mixture()) return "";
  return "every token needs all of a dense model, so what is in memory stays there";
}

}  // namespace

std::span<const StreamingWord> StreamingWords() {
  static const std::vector<StreamingWord> words = {
      {"pipeline", NamesOf(AllPipelines(), PipelineName), TakePipeline},
      {"reads", "whole|gates-first|pieces|gates-first-pieces", TakeReads},
      {"io", "auto|io_uring|pread", TakeIo},
      {"io_thread", NamesOf(AllIoThreads(), IoThreadName), TakeIoThread},
      {"cache_policy", CachePolicyNames("|"), TakeCachePolicy},
      {"lookahead", NamesOf(AllLookaheads(), LookaheadName), TakeLookahead}};
  return words;
}

bool TakeMergeGap(StreamingOptions& options, std::optional<uint64_t> bytes) {
  options.pipeline.merge_gap_bytes.reset();
  if (!bytes) return true;
  if (*bytes > kMaxGapBytes) return false;
  options.pipeline.merge_gap_bytes = static_cast<uint32_t>(*bytes);
  return true;
}

std::optional<IdleSetting> FindContradiction(const StreamingOptions& options,
                                             std::span<const std::string> given) {
  const auto was_given = [&](const char* field) {
    return std::find(given.begin(), given.end(), field) != given.end();
  };
  const PipelineKind pipeline = options.pipeline.pipeline;
  const std::string other = std::string("pipeline ") + PipelineName(pipeline);
  if (was_given("cache_policy") && pipeline == PipelineKind::kLlmFlash) {
    return IdleSetting{"cache_policy", other, "it keeps a window of its own"};
  }
  if (was_given("reads") && pipeline != PipelineKind::kCluster) {
    return IdleSetting{"reads", other, "only cluster can choose"};
  }
  const DecodeOptions decode = options.pipeline.decode();
  if (was_given("merge_gap") && decode.gates_first) {
    return IdleSetting{"merge_gap", "reads gates-first", "halves of bundles are never neighbours"};
  }
  if (was_given("merge_gap") && decode.piece_bytes > 0) {
    return IdleSetting{"merge_gap", "reads pieces", "they are not to be joined"};
  }
  if (was_given("io_thread") && pipeline != PipelineKind::kCluster) {
    return IdleSetting{"io_thread", other, "only cluster reads while it computes"};
  }
  if (was_given("lookahead") && pipeline != PipelineKind::kCluster) {
    return IdleSetting{"lookahead", other, "only cluster reads ahead"};
  }
  return std::nullopt;
}

std::optional<IdleSetting> FindIdleSetting(const Engine& engine,
                                           std::span<const std::string> given) {
  const StreamedMatrices* const matrices = engine.streamed_matrices();
  for (const std::string& field : given) {
    const std::string why = !engine.is_streamed()
                                ? "the model is in memory as a whole (a smaller memory limit would "
                                  "stream it)"
                            : matrices == nullptr ? IdleForNeurons(engine, field)
                                                  : IdleForMatrices(*matrices, field);
    if (!why.empty()) return IdleSetting{field, "", why};
  }
  return std::nullopt;
}

}  // namespace hearth
