#include "planner/access_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "sparsity/trace.h"
#include "storage/atomic_file.h"
#include "storage/block_reader.h"

namespace hearth {
namespace {

std::string TracePath(const std::string& stem) { return stem + ".trace"; }
std::string CountsPath(const std::string& stem) { return stem + ".json"; }

TraceHeader HeaderOf(const Engine& engine, uint64_t model_hash) {
  const ModelSpec& spec = engine.model().spec();
  const FfnSpec& ffn = spec.layers.front().ffn;
  return {.model_name = engine.model().spec().name,
          .model_hash = model_hash,
          .activation = ffn.activation,
          .num_layers = spec.num_layers,
          .num_experts = ffn.num_experts,
          .num_experts_per_token = ffn.num_experts_per_token,
          .intermediate_size = ffn.intermediate_size};
}

// Writes what every token asks for, and counts what it multiplies.
class AccessRecorder : public ForwardObserver {
 public:
  AccessRecorder(TraceWriter& trace, FfnMode mode) : trace_(trace), mode_(mode) {}

  void OnFfnNeurons(const NeuronObservation& observed) override {
    const bool is_predicted = mode_ == FfnMode::kPredicted;
    const std::span<const int32_t> asked = is_predicted ? *observed.listed : observed.fired;
    trace_.Append(observed.token, static_cast<int32_t>(observed.expert), asked);
    activity_.gate += static_cast<double>(is_predicted ? std::ssize(asked) : observed.all.gate);
    activity_.up += static_cast<double>(CountCommon(asked, observed.fired));
    activity_.down += static_cast<double>(CountCommon(asked, observed.active));
  }

  const FfnActivity& activity() const { return activity_; }

 private:
  // Of two ascending lists.
  static int64_t CountCommon(std::span<const int32_t> a, std::span<const int32_t> b) {
    int64_t count = 0;
    for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
      if (a[i] == b[j]) ++count;
      const bool advances_a = a[i] <= b[j], advances_b = b[j] <= a[i];
      i += advances_a ? 1 : 0;
      j += advances_b ? 1 : 0;
    }
    return count;
  }

  TraceWriter& trace_;
  const FfnMode mode_;
  FfnActivity activity_;
};

void WriteCounts(const std::string& path, const AccessRecorder& recorder, FfnMode mode,
                 uint64_t model_hash, int64_t tokens) {
  const FfnActivity& sums = recorder.activity();
  const auto all = static_cast<double>(tokens);
  const nlohmann::ordered_json document = {{"model_hash", fmt::format("{:016x}", model_hash)},
                                           {"mode", FfnModeName(mode)},
                                           {"tokens", tokens},
                                           {"gate_per_token", sums.gate / all},
                                           {"up_per_token", sums.up / all},
                                           {"down_per_token", sums.down / all}};
  WriteFileAtomically(path, document.dump(2) + "\n");
}

double PerToken(const nlohmann::json& document, const char* name, const std::string& path) {
  const auto found = document.find(name);
  if (found != document.end() && found->is_number()) {
    const auto value = found->get<double>();
    if (std::isfinite(value) && value >= 0) return value;
  }
  throw Error(ErrorCode::kCorrupt, path, name, "a number from 0 on", "something else");
}

}  // namespace

void RecordAccesses(Engine& engine, uint64_t model_hash, std::span<const TokenId> tokens,
                    const std::string& stem,
                    const std::function<void(uint64_t done, uint64_t total)>& progress) {
  if (engine.mode() == FfnMode::kDense || !engine.model().weights().layers.front().has_rows()) {
    throw Error(ErrorCode::kInvalidArgument, engine.model().path(),
                "accesses of single neurons are recorded of packed models in gated or predicted "
                "mode");
  }
  TraceWriter trace(TracePath(stem), HeaderOf(engine, model_hash));
  AccessRecorder recorder(trace, engine.mode());
  KvSequence kv(engine.kv_pool());
  const auto batch = static_cast<size_t>(engine.forward().limits().max_tokens);
  for (size_t done = 0; done < tokens.size();) {
    const BatchSequence part{&kv, tokens.subspan(done, std::min(batch, tokens.size() - done))};
    trace.BeginBatch(part.tokens, done == 0);
    engine.forward().Run({&part, 1}, engine.selector(), &recorder);
    trace.EndBatch();
    done += part.tokens.size();
    if (progress) progress(done, tokens.size());
  }
  trace.Finish();
  WriteCounts(CountsPath(stem), recorder, engine.mode(), model_hash, std::ssize(tokens));
}

std::optional<AccessRecord> ReadAccessRecord(const std::string& stem, uint64_t model_hash,
                                             FfnMode mode) {
  const std::string path = CountsPath(stem);
  if (!std::filesystem::exists(path) || !std::filesystem::exists(TracePath(stem))) return {};
  std::ifstream file(path);
  const nlohmann::json document = nlohmann::json::parse(file, nullptr, false);
  if (!document.is_object()) throw Error(ErrorCode::kCorrupt, path, "this is no JSON object");
  const auto says = [&](const char* name, const std::string& expected) {
    const auto found = document.find(name);
    if (found != document.end() && *found == expected) return;
    throw Error(ErrorCode::kInvalidArgument, path, name, expected,
                found == document.end() ? "nothing" : found->dump());
  };
  says("model_hash", fmt::format("{:016x}", model_hash));
  says("mode", FfnModeName(mode));
  AccessRecord record;
  record.lists = ReadAccessSequence(OpenFileReader(TracePath(stem)));
  record.tokens = record.lists.num_passes();
  record.activity = {.gate = PerToken(document, "gate_per_token", path),
                     .up = PerToken(document, "up_per_token", path),
                     .down = PerToken(document, "down_per_token", path)};
  return record;
}

}  // namespace hearth
