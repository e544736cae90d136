// The part of a packed model that lies on a device beside the processor: the hottest neurons of its
// FFNs (P1 §5.3).
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

#include "accel/device_ffns.h"
#include "accel/devices.h"
#include "engine/load/model.h"
#include "format/gguf.h"
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
  // Of every FFN, on the device; nothing: the same number of each, as many as fit. 0: none, and no
  // device is used.
  std::optional<int64_t> neurons;
  // Instead of both: what an execution plan says. It is obeyed to the byte, or refused.
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

// Takes the first neurons of every FFN out of a plan, so that they are not loaded: by layer so
// many, at most as many as there are.
void LeaveToDevice(LoadPlan& plan, std::span<const int64_t> layer_neurons);

// What a device takes for so many neurons of each layer's FFN of a packed model, as its ledger will
// have it; the scratch for passes of at most batch_tokens tokens. Throws as DevicePart for models
// that cannot lie on a device.
std::map<std::string, uint64_t> DeviceLedger(const GgufFile& file, const LoadPlan& plan,
                                             std::vector<int64_t> layer_neurons,
                                             int64_t batch_tokens);
// Bytes of one neuron in device memory.
uint64_t DeviceNeuronBytes(const GgufFile& file, const LoadPlan& plan);

// One thread at a time.
class DevicePart {
 public:
  // Opens the device, decides how many neurons it gets, builds kernels and makes buffers. `plan` is
  // of `file`, before LeaveToDevice; passes have at most batch_tokens tokens. Throws
  // Error(kUnsupported) for models whose FFNs cannot lie on a device, Error(kNotFound) where there
  // is none, Error(kOutOfBudget), naming the memory that would do, Error(kInvalidArgument) for a
  // request that makes no sense or a plan of another model, and what the device throws.
  DevicePart(const DeviceRequest& request, const GgufFile& file, const LoadPlan& plan,
             int64_t batch_tokens);

  // Reads the neurons and checks them. Throws Error(kCorrupt), Error(kIo).
  void Fill(const GgufFile& file, const LoadPlan& plan, const ProgressFn& progress);

  size_t index() const { return index_; }  // in accel::ListDevices
  accel::Device& device() const { return *device_; }
  accel::DeviceFfns& ffns() { return *ffns_; }
  const accel::DeviceFfns& ffns() const { return *ffns_; }
  // Neurons of each layer's FFN that are on the device, and how many an FFN has in all.
  std::span<const int64_t> layer_neurons() const { return ffns_->shape().neurons; }
  int64_t neurons_of_ffn() const { return neurons_of_ffn_; }
  const accel::DeviceTrace* trace() const { return ffns_->trace(); }  // null where none is kept

 private:
  const bool is_traced_;
  size_t index_ = 0;
  std::unique_ptr<accel::Device> device_;
  accel::DeviceTrace trace_;
  std::unique_ptr<accel::DeviceFfns> ffns_;
  int64_t neurons_of_ffn_ = 0;
};

// How an engine uses a device.
struct DeviceUse {
  std::unique_ptr<DevicePart> part;  // null: it uses none
  std::string why_none;              // one sentence where one was asked for; else empty
};

}  // namespace hearth
