#include "prepare/profile/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/checksum.h"
#include "base/error.h"
#include "engine/session/text_windows.h"
#include "ops/elementwise.h"
#include "prepare/profile/activation_counter.h"
#include "tensor/op_names.h"
#include "tensor/row_groups.h"

namespace hearth {
namespace {

constexpr size_t kMaxNameBytes = 1024;
// Rows of a down matrix that are turned into floats at a time.
constexpr int64_t kNormRows = 16;

bool SameFfn(const FfnSpec& a, const FfnSpec& b) {
  return a.intermediate_size == b.intermediate_size && a.num_experts == b.num_experts &&
         a.num_experts_per_token == b.num_experts_per_token && a.activation == b.activation;
}

void AllocateFfns(ModelProfile& profile) {
  const auto neurons = static_cast<size_t>(profile.intermediate_size);
  profile.ffns.resize(static_cast<size_t>(profile.num_layers * profile.ffns_per_layer()));
  for (FfnProfile& ffn : profile.ffns) {
    ffn.gate_fired.assign(neurons, 0);
    ffn.active.assign(neurons, 0);
    ffn.mass.assign(neurons, 0);
    ffn.down_norm.assign(neurons, 0);
  }
}

// Lengths of the columns of `down` [hidden][neurons] as it is held in memory.
void ColumnNorms(Compute& compute, const WeightView& down, FloatView scratch,
                 std::vector<double>& squares, std::vector<float>& norms) {
  std::fill(squares.begin(), squares.end(), 0.0);
  std::vector<int32_t> ids;
  for (int64_t first = 0; first < down.rows; first += kNormRows) {
    const int64_t count = std::min(kNormRows, down.rows - first);
    ids.clear();
    for (int64_t r = 0; r < count; ++r) ids.push_back(static_cast<int32_t>(first + r));
    LookUpRows(compute, down, ids, scratch.Rows(0, count));
    compute.team().ParallelFor(down.cols, 256, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = 0; r < count; ++r) {
        const float* row = scratch.row(r);
        for (int64_t j = begin; j < end; ++j) {
          squares[static_cast<size_t>(j)] +=
              static_cast<double>(row[j]) * static_cast<double>(row[j]);
        }
      }
    });
  }
  for (size_t j = 0; j < norms.size(); ++j) norms[j] = static_cast<float>(std::sqrt(squares[j]));
}

// Lengths of the rows of `down` [neurons][hidden], the columns of the matrix.
void RowNorms(Compute& compute, const RowsView& down, std::vector<float>& norms) {
  const auto add = compute.kernels().row_scaled_add[static_cast<size_t>(down.dtype)];
  const int64_t groups = (down.cols + kRowGroupWeights - 1) / kRowGroupWeights;
  compute.team().ParallelFor(down.rows, 64, [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(static_cast<size_t>(down.cols));
    const float one = 1;
    for (int64_t j = begin; j < end; ++j) {
      const auto id = static_cast<int32_t>(j);
      std::fill(row.begin(), row.end(), 0.0f);
      add({{down.data, down.stride, &id, 1}, &one, down.cols, 0, groups, row.data()});
      double squares = 0;
      for (const float w : row) squares += static_cast<double>(w) * static_cast<double>(w);
      norms[static_cast<size_t>(j)] = static_cast<float>(std::sqrt(squares));
    }
  });
}

void FillDownNorms(Engine& engine, ModelProfile& profile) {
  const int64_t neurons = profile.intermediate_size;
  const auto floats = static_cast<size_t>(kNormRows * neurons);
  Buffer memory(engine.budget(), "profile", floats * sizeof(float));
  const FloatView scratch{memory.As<float>(floats).data(), kNormRows, neurons, neurons};
  std::vector<double> squares(static_cast<size_t>(neurons));
  for (int64_t layer = 0; layer < profile.num_layers; ++layer) {
    const LayerWeights& weights = engine.model().weights().layers[static_cast<size_t>(layer)];
    for (int64_t expert = 0; expert < profile.ffns_per_layer(); ++expert) {
      std::vector<float>& norms = profile.At(layer, expert).down_norm;
      if (weights.has_rows()) {
        RowNorms(engine.compute(), weights.down_rows.Expert(expert), norms);
      } else {
        Buffer copy;
        const WeightView down = engine.MatrixOf(layer, expert, FfnMatrix::kDown, copy);
        ColumnNorms(engine.compute(), down, scratch, squares, norms);
      }
      for (const float norm : norms) {
        if (std::isfinite(norm)) continue;
        throw Error(ErrorCode::kCorrupt, engine.model().path(),
                    fmt::format("blk.{}.ffn_down holds weights that are no numbers", layer));
      }
    }
  }
}

// A run from where a profile stands.
class ProfileRun {
 public:
  ProfileRun(Engine& engine, std::span<const TokenId> text, ModelProfile& profile,
             const ProfileRunOptions& options)
      : engine_(engine),
        windows_(text, engine.model().tokenizer().special().bos, engine.context()),
        profile_(profile),
        options_(options),
        counter_(engine.compute(), engine.model().spec(), profile,
                 [this](int64_t layer) { Report(layer); }) {}

  void Run() {
    const auto context = static_cast<uint64_t>(profile_.context);
    while (!profile_.complete() && !stopped_) {
      RunWindow(profile_.text_tokens / context, profile_.text_tokens % context);
      CheckNumbers();
    }
    Save();
  }

 private:
  using Clock = std::chrono::steady_clock;

  // The statistics hold the window's first `known` tokens. They are computed again, without being
  // counted, for their keys and values.
  void RunWindow(uint64_t index, uint64_t known) {
    const std::vector<TokenId> window = windows_.Window(index);
    const std::span<const TokenId> tokens = window;
    KvSequence kv(engine_.kv_pool());
    const auto poll = [this](size_t, size_t) { return !CancelAsked(); };
    if (!RunInChunks(engine_.pass(), kv, tokens.first(known), selector_, nullptr, poll)) return;
    const auto chunk = static_cast<size_t>(engine_.pass().limits().max_tokens);
    for (size_t begin = known; begin < tokens.size() && !CancelAsked(); begin += chunk) {
      RunChunk(kv, tokens.subspan(begin, std::min(chunk, tokens.size() - begin)), begin == 0);
    }
  }

  void RunChunk(KvSequence& kv, std::span<const TokenId> tokens, bool starts_window) {
    chunk_tokens_ = tokens.size();
    uint64_t traced = 0;
    if (options_.trace != nullptr) {
      traced = std::min<uint64_t>(tokens.size(), options_.trace_tokens - options_.trace->tokens());
    }
    counter_.SetTrace(traced > 0 ? options_.trace : nullptr, static_cast<int64_t>(traced));
    if (traced > 0) options_.trace->BeginBatch(tokens.first(traced), starts_window);
    const BatchSequence sequence{&kv, tokens};
    engine_.pass().Run({PassKind::kPrefill, {&sequence, 1}}, selector_, &counter_);
    if (traced > 0) options_.trace->EndBatch();
    profile_.text_tokens += tokens.size();
    chunk_tokens_ = 0;
    Report(0);
    if (std::chrono::duration<double>(Clock::now() - last_save_).count() >= options_.save_seconds) {
      Save();
    }
  }

  bool CancelAsked() {
    stopped_ = stopped_ || (options_.cancel != nullptr && options_.cancel->load());
    return stopped_;
  }

  // Within a batch, in proportion to its layers.
  void Report(int64_t layer) {
    if (!options_.progress) return;
    const uint64_t done =
        chunk_tokens_ * static_cast<uint64_t>(layer) / static_cast<uint64_t>(profile_.num_layers);
    options_.progress(profile_.text_tokens + done, profile_.total_tokens);
  }

  void CheckNumbers() const {
    for (const FfnProfile& ffn : profile_.ffns) {
      for (const double mass : ffn.mass) {
        if (std::isfinite(mass)) continue;
        throw Error(ErrorCode::kCorrupt, engine_.model().path(), "its activations are not numbers");
      }
    }
  }

  void Save() {
    if (options_.save) {
      CheckNumbers();
      options_.save(profile_);
    }
    last_save_ = Clock::now();
  }

  Engine& engine_;
  const TextWindows windows_;
  ModelProfile& profile_;
  const ProfileRunOptions& options_;
  DenseSelector selector_;
  ActivationCounter counter_;
  Clock::time_point last_save_ = Clock::now();
  uint64_t chunk_tokens_ = 0;  // of the batch that is running
  bool stopped_ = false;
};

}  // namespace

ModelProfile PlanProfile(const ModelSpec& spec, uint64_t model_hash, std::span<const TokenId> text,
                         const ProfileSettings& settings) {
  if (text.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "profile", "the text is empty: nothing would fire");
  }
  if (settings.context < (settings.bos >= 0 ? 2 : 1)) {
    throw Error(ErrorCode::kInvalidArgument, "profile", "context", "room for a token after BOS",
                std::to_string(settings.context));
  }
  const FfnSpec& ffn = MainFfn(spec);
  for (const LayerSpec& layer : spec.layers) {
    if (!SameFfn(layer.ffn, ffn)) {
      throw Error(ErrorCode::kUnsupported, spec.name,
                  "a model whose layers have FFNs of different kinds cannot be profiled");
    }
  }
  ModelProfile profile;
  profile.model_name = spec.name.substr(0, kMaxNameBytes);
  profile.model_hash = model_hash;
  profile.text_hash = Checksum(std::as_bytes(text));
  profile.total_tokens = TextWindows(text, settings.bos, settings.context).total_tokens();
  profile.context = settings.context;
  profile.kv_codec = settings.kv_codec;
  profile.activation = ffn.activation;
  profile.threshold = ffn.activation == FfnActivation::kFatRelu ? ffn.threshold : 0;
  profile.num_layers = spec.num_layers;
  profile.num_experts = ffn.num_experts;
  profile.intermediate_size = ffn.intermediate_size;
  return profile;
}

std::string DifferenceOfRuns(const ModelProfile& saved, const ModelProfile& planned) {
  const bool has_its_sizes = saved.num_layers == planned.num_layers &&
                             saved.num_experts == planned.num_experts &&
                             saved.intermediate_size == planned.intermediate_size;
  if (has_its_sizes && saved.activation != planned.activation) {
    return fmt::format("a model with another activation ({})", FfnActivationName(saved.activation));
  }
  if (saved.model_hash != planned.model_hash || !has_its_sizes) {
    return fmt::format("another model ('{}')", Printable(saved.model_name));
  }
  if (saved.context != planned.context) {
    return fmt::format("windows of {} tokens instead of {}", saved.context, planned.context);
  }
  if (saved.kv_codec != planned.kv_codec) return "another type of KV cache";
  if (saved.text_hash != planned.text_hash || saved.total_tokens != planned.total_tokens) {
    return "another text";
  }
  return "";
}

TraceHeader TraceHeaderOf(const ModelProfile& profile, int64_t num_experts_per_token) {
  return {.model_name = profile.model_name,
          .model_hash = profile.model_hash,
          .activation = profile.activation,
          .num_layers = profile.num_layers,
          .num_experts = profile.num_experts,
          .num_experts_per_token = num_experts_per_token,
          .intermediate_size = profile.intermediate_size};
}

uint64_t ProfileRunBytes(const GgufFile& file, const ModelProfile& profile,
                         const TraceWriter* trace) {
  LoadPlan load = PlanLoad(file);
  uint64_t bytes = profile.ffns.empty() ? ProfileBytes(profile) : 0;
  if (trace != nullptr) bytes += trace->BatchBytes(EngineOptions().batch_tokens);
  if (load.is_packed) return bytes;
  // Of a streamed model, the down matrix whose norms are computed.
  DescribeWeights(load);
  uint64_t largest = 0;
  for (const LayerWeights& layer : load.weights->layers) {
    largest =
        std::max(largest, Buffer::ChargedBytes(layer.Matrix(FfnMatrix::kDown).expert_bytes()));
  }
  return bytes + largest;
}

void RunProfile(Engine& engine, std::span<const TokenId> text, ModelProfile& profile,
                const ProfileRunOptions& options) {
  if (options.trace != nullptr && profile.text_tokens > 0) {
    throw Error(ErrorCode::kInvalidArgument, "trace",
                "a run that continues cannot be traced: its first tokens would be missing");
  }
  if (engine.streamed() != nullptr) {
    throw Error(ErrorCode::kUnsupported, engine.model().path(),
                "a packed model can only be profiled in memory that holds all of it: give it a "
                "larger memory limit, or profile the model that it came from");
  }
  BudgetCharge statistics, records;
  if (profile.ffns.empty()) {  // else they were there before the budget looked at the program
    statistics = engine.budget().Charge("profile", ProfileBytes(profile));
    AllocateFfns(profile);
    FillDownNorms(engine, profile);
  }
  if (options.trace != nullptr) {
    records = engine.budget().Charge("trace",
                                     options.trace->BatchBytes(engine.pass().limits().max_tokens));
  }
  ProfileRun(engine, text, profile, options).Run();
}

}  // namespace hearth
