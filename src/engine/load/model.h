// A model in memory: its description, tokenizer and weights. Immutable once loaded, so that
// several sessions may share it; only trials change its activation
// (prepare/profile/activation_trial.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "format/bundle_layout.h"
#include "format/gguf.h"
#include "model/model_spec.h"
#include "model/registry.h"
#include "model/weights.h"
#include "ops/compute.h"
#include "sparsity/predictor.h"
#include "storage/async/async_reader.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

// Called from the loading thread with bytes done and in all. May throw to stop the load.
using ProgressFn = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// How the bundles of a layer are held in memory: all gate rows, then up and down of every neuron,
// each part on a multiple of 64 bytes.
struct BundlePlacement {
  BundleLayout layout;  // in the file
  int64_t layer = 0;
  int64_t hidden_size = 0;
  size_t gate_stride = 0;
  size_t down_offset = 0;  // from up
  size_t rest_stride = 0;  // of up and down

  BundlePlacement(BundleLayout in_file, int64_t layer_index, int64_t hidden);
  size_t bytes_of_neuron() const { return gate_stride + rest_stride; }
};

// How one tensor of the file is held in memory.
struct ResidentTensor {
  WeightDecl decl;                     // of bundles: cols is their stride, slot is null
  const GgufTensor* stored = nullptr;  // in the file's directory
  DType dtype = DType::kF32;           // in memory
  bool is_tiled = false;               // as WeightView has it
  std::optional<BundlePlacement> bundles;
  // Of the stored experts, those that are held, ascending; decl.experts is their number. Empty:
  // all.
  std::vector<int32_t> held_experts;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // in the weights buffer

  // The matrix or vector, where it lies in the buffer; without data where that is null. Not for
  // bundles.
  WeightView View(const std::byte* buffer) const;
  // Rows that the file's tensor has for each expert, which are more than this one's where it is a
  // part of that tensor; and the byte of the first expert at which its part begins.
  uint64_t stored_rows() const;
  uint64_t stored_begin() const;
  // Bytes of a row as the file stores it, and of all rows of one expert.
  uint64_t stored_row_bytes() const {
    return RowBytes(stored->dtype, static_cast<size_t>(decl.cols));
  }
  uint64_t stored_expert_bytes() const {
    return static_cast<uint64_t>(decl.rows) * stored_row_bytes();
  }
  // Which of the stored experts number `held` is; and how many are stored.
  uint64_t StoredExpert(uint64_t held) const {
    return held_experts.empty() ? held : static_cast<uint64_t>(held_experts[held]);
  }
  int64_t stored_experts() const {
    return held_experts.empty() ? decl.experts : static_cast<int64_t>(stored->ne[2]);
  }
  // Neurons of all experts.
  uint64_t neurons() const { return static_cast<uint64_t>(decl.rows * decl.experts); }
};

// What loading a file would take, decided before anything large is allocated.
struct LoadPlan {
  ModelSpec spec;
  std::unique_ptr<ModelWeights> weights;  // slots of `tensors`, empty until loaded
  std::vector<ResidentTensor> tensors;
  bool is_packed = false;                       // FFNs are bundles
  std::unique_ptr<ModelPredictors> predictors;  // likewise slots; null where the file has none
  uint64_t weights_bytes = 0;                   // resident, conversions and alignment included
  // Under a memory limit the page cache must not keep what has been read.
  bool drop_page_cache = false;
  AsyncFileOptions io;  // of the reads that load it
  // (stored type, type in memory) of matrices whose type changes; for reports.
  std::set<std::pair<DType, DType>> conversions;
};

// Checks architecture, tensors and shapes against the file. Reads a few rows of tensors whose
// resident type depends on them. Throws hearth::Error.
LoadPlan PlanLoad(const GgufFile& file);

// What a load refuses besides, with Error(kCorrupt): a vocabulary with more tokens than the
// embedding has rows, and RoPE factors that are not positive, which are read from the file. The
// types of its tensors are those that PlanLoad has seen.
void CheckVocabulary(const ModelSpec& spec, const Tokenizer& tokenizer, const std::string& file);
void CheckRopeFactors(const GgufFile& file);

// Types and shapes of weights, without data, for estimates of work (measure/work_estimate.h): of
// the neurons of a bundle tensor; of all tensors.
void DescribeRows(const ResidentTensor& tensor, ModelWeights& weights);
void DescribeWeights(LoadPlan& plan);

// Takes tensors out of a plan: they are not loaded, and what follows them moves up.
void RemoveTensors(LoadPlan& plan, const std::function<bool(const ResidentTensor&)>& is_removed);

class Model {
 public:
  // Reads all weights into memory with every thread of `compute`. Throws hearth::Error; nothing
  // stays allocated then. `budget` must outlive the model.
  static std::unique_ptr<Model> Load(const GgufFile& file, LoadPlan plan,
                                     std::unique_ptr<Tokenizer> tokenizer, Budget& budget,
                                     Compute& compute, const ProgressFn& progress = {});

  const std::string& path() const { return path_; }
  // The last part of the path, without ".gguf".
  std::string name() const;
  const ModelSpec& spec() const { return spec_; }
  const ModelWeights& weights() const { return *weights_; }
  const ModelPredictors* predictors() const { return predictors_.get(); }  // null: none
  // All weights as they lie in memory, one after the other.
  std::span<const std::byte> memory() const { return {memory_.data(), memory_.size_bytes()}; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const GgufMetadata& metadata() const { return metadata_; }
  // The file that it was loaded from, with what was assumed of it. Throws as GgufFile::Open does.
  GgufFile Reopen() const;
  // Gives the FFNs of all layers the activation and threshold of `as`, from the next pass on. KV
  // pages that were computed before are another model's then.
  void SetActivation(const FfnSpec& as);

 private:
  Model() = default;

  std::string path_;
  GgufMetadata metadata_;
  GgufMetadata assumed_;  // of these
  ModelSpec spec_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Buffer memory_;
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<ModelPredictors> predictors_;
};

}  // namespace hearth
