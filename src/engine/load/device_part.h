// The part of a model that lies on a device beside the processor: matrices, and of a packed model
// also the hottest neurons of its FFNs (P1 §5.3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accel/device_attention.h"
#include "accel/device_ffns.h"
#include "accel/device_layers.h"
#include "accel/device_matrices.h"
#include "accel/device_predictors.h"
#include "accel/devices.h"
#include "base/buffer.h"
#include "engine/load/choose_matrices.h"
#include "engine/load/model.h"
#include "engine/load/placed_attention.h"
#include "engine/load/placed_matrices.h"
#include "engine/load/placed_neurons.h"
#include "engine/load/prompt_uploads.h"
#include "format/gguf.h"
#include "pass/device/device_weights.h"
#include "plan/matrix_placement.h"
#include "plan/planned_device.h"

namespace hearth {

// What a user asks for.
struct DeviceRequest {
  accel::DeviceChoice choice;
  // The model runs on the processor alone where the device cannot be used, and the engine says why.
  bool may_do_without = false;
  // Of the device, for the model. Nothing: seven eighths of its memory; a device that shares the
  // host's memory needs a number.
  std::optional<uint64_t> memory_bytes;
  // Of every FFN of a packed model, on the device, and nothing else; nothing: matrices that are not
  // its FFNs', and the same number of each FFN, as many as fit beside them. 0: none, and no device
  // is used.
  std::optional<int64_t> neurons;
  // Of a model that is not packed.
  MatrixCounts matrices;
  // Of such a model, MatrixPlacement::upload_tokens; 0: nothing is uploaded.
  int64_t upload_tokens = 0;
  // MatrixWishes::kv_tokens.
  std::optional<int64_t> kv_tokens;
  // Instead of all that: what an execution plan says. It is obeyed to the byte, or refused.
  std::optional<PlannedDevice> planned;
  bool is_traced = false;  // what both sides do over time is kept (DevicePart::trace)
  // Keeps built programs; empty: nothing is kept.
  std::string programs_folder;
  // Opens devices; tests have others than the system's.
  std::function<std::unique_ptr<accel::Device>(size_t, const accel::DeviceOptions&)> open =
      accel::OpenDevice;

  bool is_wanted() const {
    return choice.kind != accel::DeviceChoice::Kind::kNone && neurons != int64_t{0};
  }
};

// What lies on a device: matrices, and neurons of a packed model.
struct OnDevice {
  std::span<const int64_t> neurons = {};      // by layer, of its FFN, the first ones
  const MatrixPlacement* matrices = nullptr;  // null: none

  bool any() const { return !neurons.empty() || matrices != nullptr; }
};

// One thread at a time.
class DevicePart {
 public:
  // Opens the device, decides what it gets, builds kernels and makes buffers. `plan` is of `file`,
  // before LeaveToDevice. Throws Error(kUnsupported) for
  // models of which nothing can lie on a device, Error(kNotFound) where there is none,
  // Error(kOutOfBudget), naming the memory that would do, Error(kInvalidArgument) for a request
  // that makes no sense or a plan of another model, and what the device throws.
  DevicePart(const DeviceRequest& request, const GgufFile& file, const LoadPlan& plan,
             const DevicePasses& passes);

  // Reads what lies on the device, checks and uploads it. Throws Error(kCorrupt), Error(kIo).
  void Fill(const GgufFile& file, const LoadPlan& plan, const ProgressFn& progress);

  size_t index() const { return index_; }  // in accel::ListDevices
  accel::Device& device() const { return *device_; }
  OnDevice what() const {
    return {.neurons = ffns_ ? layer_neurons() : std::span<const int64_t>(),
            .matrices = matrices_ ? &placement_ : nullptr};
  }
  // Says what lies there so that no two placements of a model say the same.
  std::string PlacementText() const;
  const accel::DeviceTrace* trace() const {  // null where none is kept
    return ffns_ ? ffns_->trace() : matrices_->trace();
  }

  // Of a packed model.
  bool has_neurons() const { return ffns_ != nullptr; }
  accel::DeviceFfns* ffns() { return ffns_.get(); }  // null where it has matrices
  const accel::DeviceFfns* ffns() const { return ffns_.get(); }
  // Neurons of each FFN of a layer that are on the device, and how many an FFN has in all.
  std::span<const int64_t> layer_neurons() const { return neurons_->layer_neurons; }
  int64_t neurons_of_ffn() const { return neurons_->neurons_of_ffn; }

  const MatrixPlacement& placement() const { return placement_; }
  const accel::DeviceMatrices* matrices() const { return matrices_.get(); }  // null: none
  // Where the placement uploads for prompts, prepares that; charges the host's budget too. Model
  // and budget must outlive the object. Throws as PromptUploads.
  void MakeUploads(const Model& model, Budget& budget);
  // Where the placement has keys and values on the device, prepares attention there, and layers
  // that are there as a whole; charges
  // KvStagingBytes to the host's budget as "kv staging". As MakeUploads.
  void MakeAttention(const Model& model, Budget& budget);
  const accel::DeviceAttention* attention() const { return attention_.get(); }  // null: none
  const accel::DeviceLayers* whole_layers() const { return whole_.get(); }      // null: none
  accel::DevicePredictors* predictors() const { return predictors_.get(); }     // null: none
  const PromptUploads* uploads() const { return uploads_.get(); }               // null: none
  const DeviceWeights* model() const { return matrices_ ? &model_ : nullptr; }

 private:
  std::optional<PlacedMatrices> PlacePacked(const DeviceRequest& request, const GgufFile& file,
                                            const LoadPlan& plan, const accel::DeviceInfo& info,
                                            uint64_t bytes);
  void MakeMatrices(PlacedMatrices placed, const LoadPlan& plan);

  const bool is_traced_;
  const DevicePasses passes_;
  size_t index_ = 0;
  std::unique_ptr<accel::Device> device_;
  accel::DeviceTrace trace_;
  std::optional<PlacedNeurons> neurons_;
  std::unique_ptr<accel::DeviceFfns> ffns_;
  MatrixPlacement placement_;
  std::unique_ptr<accel::DeviceMatrices> matrices_;
  std::unique_ptr<accel::DeviceAttention> attention_;
  std::unique_ptr<accel::DeviceLayers> whole_;
  std::unique_ptr<accel::DevicePredictors> predictors_;
  std::optional<DevicePages> kv_pages_;
  Buffer kv_staging_;
  DeviceWeights model_;
  std::unique_ptr<PromptUploads> uploads_;
};

// How an engine uses a device.
struct DeviceUse {
  std::unique_ptr<DevicePart> part;  // null: it uses none
  std::string why_none;              // one sentence where one was asked for; else empty
};

}  // namespace hearth
