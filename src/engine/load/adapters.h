// Low-rank adapters beside a loaded model: planned from their headers, then held in memory as
// floats.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "format/gguf.h"
#include "import/adapter_file.h"
#include "model/adapter.h"
#include "model/model_spec.h"
#include "model/weights.h"

namespace hearth {

// The largest rank of an adapter's matrices. Published ones have 4 to 256.
inline constexpr int64_t kMostAdapterRank = 1024;
// Adapters of an engine, and of a request.
inline constexpr size_t kMostAdapters = 1024;

// An adapter that an engine is to have: a GGUF file, a PEFT folder or its safetensors file.
struct AdapterOption {
  std::string path;
  float weight = 1;  // for texts that choose no adapters; 0: without it
};

// One adapter of an engine, chosen by its number, with a weight.
struct AdapterScale {
  int64_t id = 0;
  float weight = 1;
};

// The term of one matrix of the base, or of one part of a fused matrix.
struct PlannedPair {
  int64_t layer = 0;
  AdaptedMatrix which = AdaptedMatrix::kQuery;
  const GgufTensor* a = nullptr;  // in the file's directory
  const GgufTensor* b = nullptr;
  int64_t first_row = 0;  // of b
  int64_t rows = 0;
  double scale = 1;
  uint64_t a_offset = 0;  // in floats; parts of one tensor share their A
  uint64_t b_offset = 0;
};

// What loading an adapter takes: F32, whatever the file's type.
struct AdapterPlan {
  AdapterOption option;
  std::unique_ptr<AdapterFile> file;  // at an address of its own: pairs point into it
  std::vector<PlannedPair> pairs;
  uint64_t floats = 0;
  int64_t widest_ranks = 0;

  uint64_t bytes() const { return floats * sizeof(float); }
};

// Opens an adapter and compares every tensor with the base. Throws Error: kCorrupt for shapes that
// do not fit, naming tensor and shapes, kUnsupported for what is not computed (embeddings, output
// matrix, norms, routers, experts; FFNs that are single neurons), kNotFound, kIo. `ffn` says how
// the base holds its FFNs.
AdapterPlan PlanAdapter(const AdapterOption& option, const ModelSpec& spec, FfnStorage ffn);

// An adapter in memory.
class LoadedAdapter {
 public:
  // Charged to `budget` as "adapters", Buffer::ChargedBytes(plan.bytes()). Throws Error(kCorrupt)
  // for numbers that are not finite, Error(kIo), Error(kOutOfBudget).
  LoadedAdapter(const AdapterPlan& plan, int64_t num_layers, Budget& budget);
  LoadedAdapter(const LoadedAdapter&) = delete;
  LoadedAdapter& operator=(const LoadedAdapter&) = delete;

  const std::string& path() const { return path_; }
  const AdapterWeights& weights() const { return weights_; }
  uint64_t bytes() const { return memory_.size_bytes(); }

 private:
  void ReadMatrices(const AdapterPlan& plan);

  std::string path_;
  Buffer memory_;
  AdapterWeights weights_;
};

// The adapters of an engine. Immutable but for the default; one thread changes that.
class AdapterSet {
 public:
  AdapterSet() = default;
  // Loads what is planned. An adapter's number is its place in `plans`. Throws as LoadedAdapter.
  AdapterSet(std::span<const AdapterPlan> plans, int64_t num_layers, Budget& budget);

  size_t size() const { return adapters_.size(); }
  const LoadedAdapter& at(size_t id) const { return *adapters_[id]; }
  // Weights for texts that choose no adapters, by number.
  const std::vector<float>& default_weights() const { return default_weights_; }
  const AdapterMix& default_mix() const { return default_mix_; }

  // A mix in the order of the adapters' numbers, whatever the order of `scales`; adapters that are
  // not named have weight 0. Throws Error(kInvalidArgument) for a number that no adapter has or
  // that is named twice, and for a weight that is not finite or beyond kMostWeight.
  AdapterMix Mix(std::span<const AdapterScale> scales) const;

  static constexpr float kMostWeight = 1000;

 private:
  std::vector<std::unique_ptr<LoadedAdapter>> adapters_;
  std::vector<float> default_weights_;
  AdapterMix default_mix_;
};

}  // namespace hearth
