#include "planner/cost/access_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "engine/load/neuron_streaming.h"
#include "sparsity/trace.h"
#include "storage/atomic_file.h"
#include "storage/block_reader.h"

namespace hearth {
namespace {

// Experts are recorded in `dense`: docs/formats/route_trace.md.
std::string TracePath(const std::string& stem, FfnMode mode) {
  return stem + (mode == FfnMode::kDense ? ".route.csv" : ".trace");
}
std::string GuessesPath(const std::string& stem) { return stem + ".ahead.trace"; }
std::string CountsPath(const std::string& stem) { return stem + ".json"; }

TraceHeader HeaderOf(const Engine& engine, uint64_t model_hash) {
  const ModelSpec& spec = engine.model().spec();
  const FfnSpec& ffn = MainFfn(spec);
  return {.model_name = engine.model().spec().name,
          .model_hash = model_hash,
          .activation = ffn.activation,
          .num_layers = spec.num_layers,
          .num_experts = ffn.num_experts,
          .num_experts_per_token = ffn.num_experts_per_token,
          .intermediate_size = ffn.intermediate_size};
}

// Of a batch of tokens after the other.
class AccessRecorder : public PassObserver {
 public:
  virtual void BeginBatch(std::span<const TokenId> tokens, bool starts_sequence) = 0;
  virtual void EndBatch() = 0;
  virtual void Finish() = 0;
  // Of all tokens so far.
  virtual FfnActivity activity() const { return {}; }
};

// Writes which neurons every token asks for, and what would be expected of them where an engine can
// look ahead; counts what is multiplied.
class NeuronRecorder final : public AccessRecorder {
 public:
  NeuronRecorder(const std::string& stem, const TraceHeader& header, FfnMode mode, bool has_guesses)
      : trace_(TracePath(stem, mode), header), mode_(mode) {
    if (has_guesses) guesses_.emplace(GuessesPath(stem), header);
  }

  void BeginBatch(std::span<const TokenId> tokens, bool starts_sequence) override {
    trace_.BeginBatch(tokens, starts_sequence);
    if (!guesses_) return;
    guesses_->BeginBatch(tokens, starts_sequence);
    // Of the first layer nothing is guessed; that no list is empty keeps tokens apart when read.
    constexpr int32_t kNobody = 0;
    for (int64_t i = 0; i < std::ssize(tokens); ++i) guesses_->Append(i, 0, {&kNobody, 1});
  }
  void EndBatch() override {
    trace_.EndBatch();
    if (guesses_) guesses_->EndBatch();
  }
  void Finish() override {
    trace_.Finish();
    if (guesses_) guesses_->Finish();
  }
  FfnActivity activity() const override { return activity_; }

  bool wants_guesses() const override { return guesses_.has_value(); }
  void OnFfnGuess(int64_t /*layer*/, int64_t token, std::span<const int32_t> neurons) override {
    guesses_->Append(token, 0, neurons);
  }

  void OnFfnNeurons(const NeuronObservation& observed) override {
    const bool is_predicted = mode_ == FfnMode::kPredicted;
    const std::span<const int32_t> asked = is_predicted ? *observed.listed : observed.fired;
    trace_.Append(observed.token, static_cast<int32_t>(observed.expert), asked);
    activity_.gate += static_cast<double>(is_predicted ? std::ssize(asked) : observed.all.gate);
    activity_.up += static_cast<double>(CountCommon(asked, observed.fired));
    activity_.down += static_cast<double>(CountCommon(asked, observed.active));
  }

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

  TraceWriter trace_;
  std::optional<TraceWriter> guesses_;
  const FfnMode mode_;
  FfnActivity activity_;
};

// Writes which experts every token is routed to.
class ExpertRecorder final : public AccessRecorder {
 public:
  ExpertRecorder(const std::string& path, const TraceHeader& header) : file_(path) {
    Write(fmt::format(
        "# route_trace v1\n# model={:016x} n_layer={} n_expert={} n_expert_used={}\n"
        "turn,phase,step,layer,slot,expert,\n",
        header.model_hash, header.num_layers, header.num_experts, header.num_experts_per_token));
  }

  void BeginBatch(std::span<const TokenId> tokens, bool /*starts_sequence*/) override {
    routes_.assign(tokens.size(), {});
  }
  void OnFfnInput(int64_t layer, int64_t expert, std::span<const int64_t> tokens, FloatView,
                  FloatView) override {
    for (const int64_t token : tokens) {
      routes_[static_cast<size_t>(token)].emplace_back(layer, expert);
    }
  }
  // A turn for each token, so that each is a pass of its own.
  void EndBatch() override {
    for (auto& route : routes_) {
      std::sort(route.begin(), route.end());
      std::string rows;
      int64_t slot = 0;
      for (size_t i = 0; i < route.size(); ++i) {
        const auto [layer, expert] = route[i];
        slot = i > 0 && route[i - 1].first == layer ? slot + 1 : 0;
        rows += fmt::format("{0},1,{0},{1},{2},{3},\n", token_, layer, slot, expert);
      }
      Write(rows);
      ++token_;
    }
  }
  void Finish() override { file_.Finish(); }

 private:
  void Write(const std::string& text) { file_.Write(std::as_bytes(std::span(text))); }

  AtomicFile file_;
  std::vector<std::vector<std::pair<int64_t, int64_t>>> routes_;  // of the batch's tokens
  int64_t token_ = 0;
};

std::unique_ptr<AccessRecorder> RecorderFor(const Engine& engine, const std::string& stem,
                                            uint64_t model_hash) {
  const TraceHeader header = HeaderOf(engine, model_hash);
  if (engine.mode() == FfnMode::kDense) {
    return std::make_unique<ExpertRecorder>(TracePath(stem, engine.mode()), header);
  }
  return std::make_unique<NeuronRecorder>(stem, header, engine.mode(),
                                          CanLookAhead(engine.model().spec(), engine.mode()));
}

// Where every token needs the same there is nothing to record.
bool HasAccesses(const Engine& engine) {
  const bool is_packed = engine.model().weights().ffns_have_rows();
  const bool is_mixture = MainFfn(engine.model().spec()).num_experts > 0;
  return is_packed ? engine.mode() != FfnMode::kDense : is_mixture;
}

void WriteCounts(const std::string& path, const AccessRecorder& recorder, FfnMode mode,
                 uint64_t model_hash, std::span<const TokenId> tokens) {
  const FfnActivity sums = recorder.activity();
  const auto all = static_cast<double>(tokens.size());
  const nlohmann::ordered_json document = {{"model_hash", fmt::format("{:016x}", model_hash)},
                                           {"mode", FfnModeName(mode)},
                                           {"tokens", tokens.size()},
                                           {"tokens_hash", HashOfRecorded(tokens)},
                                           {"guesses", recorder.wants_guesses()},
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

std::string HashOfRecorded(std::span<const TokenId> tokens) {
  return fmt::format("{:016x}", Checksum(std::as_bytes(tokens)));
}

void RecordAccesses(Engine& engine, uint64_t model_hash, std::span<const TokenId> tokens,
                    const std::string& stem,
                    const std::function<void(uint64_t done, uint64_t total)>& progress) {
  if (!HasAccesses(engine)) {
    throw Error(ErrorCode::kInvalidArgument, engine.model().path(),
                "every token needs the same of it: accesses are recorded of packed models in gated "
                "or predicted mode, and of mixtures that are not packed");
  }
  const auto recorder = RecorderFor(engine, stem, model_hash);
  KvSequence kv(engine.kv_pool());
  const auto batch = static_cast<size_t>(engine.pass().limits().max_tokens);
  for (size_t done = 0; done < tokens.size();) {
    const BatchSequence part{&kv, tokens.subspan(done, std::min(batch, tokens.size() - done))};
    recorder->BeginBatch(part.tokens, done == 0);
    engine.pass().Run({PassKind::kPrefill, {&part, 1}}, engine.selector(), recorder.get());
    recorder->EndBatch();
    done += part.tokens.size();
    if (progress) progress(done, tokens.size());
  }
  recorder->Finish();
  WriteCounts(CountsPath(stem), *recorder, engine.mode(), model_hash, tokens);
}

std::optional<AccessRecord> ReadAccessRecord(const std::string& stem, uint64_t model_hash,
                                             FfnMode mode) {
  const std::string path = CountsPath(stem);
  if (!std::filesystem::exists(path) || !std::filesystem::exists(TracePath(stem, mode))) return {};
  std::ifstream file(path);
  const nlohmann::json document = nlohmann::json::parse(file, nullptr, false);
  if (!document.is_object()) throw Error(ErrorCode::kCorrupt, path, "is not a JSON object");
  const auto says = [&](const char* name, const std::string& expected) {
    const auto found = document.find(name);
    if (found != document.end() && *found == expected) return;
    throw Error(ErrorCode::kInvalidArgument, path, name, expected,
                found == document.end() ? "nothing" : found->dump());
  };
  says("model_hash", fmt::format("{:016x}", model_hash));
  says("mode", FfnModeName(mode));
  const auto has_guesses = document.find("guesses");
  if (has_guesses == document.end()) return {};
  if (!has_guesses->is_boolean()) {
    throw Error(ErrorCode::kCorrupt, path, "guesses", "true or false", has_guesses->dump());
  }
  AccessRecord record;
  record.lists = ReadAccessSequence(OpenFileReader(TracePath(stem, mode)));
  if (*has_guesses) record.guesses = ReadAccessSequence(OpenFileReader(GuessesPath(stem)));
  record.tokens = record.lists.num_passes();
  const auto hash = document.find("tokens_hash");
  if (hash != document.end() && hash->is_string()) record.tokens_hash = hash->get<std::string>();
  record.activity = {.gate = PerToken(document, "gate_per_token", path),
                     .up = PerToken(document, "up_per_token", path),
                     .down = PerToken(document, "down_per_token", path)};
  return record;
}

}  // namespace hearth
