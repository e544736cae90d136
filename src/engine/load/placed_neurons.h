// The hottest neurons of a packed model's FFNs that lie on a device (P1 §5.3): how many fit, what
// they take, and how they get there.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "accel/device.h"
#include "accel/device_ffns.h"
#include "engine/load/model.h"
#include "format/gguf.h"
#include "plan/planned_device.h"

namespace hearth {

// Takes the first neurons of every FFN out of a plan, so that they are not loaded: by layer so
// many, at most as many as there are.
void LeaveToDevice(LoadPlan& plan, std::span<const int64_t> layer_neurons);

// What a device takes for so many neurons of each FFN of a layer of a packed model, as its ledger
// will have it; the scratch for passes of at most batch_tokens tokens. Throws as DevicePart for
// models that cannot lie on a device.
std::map<std::string, uint64_t> DeviceLedger(const GgufFile& file, const LoadPlan& plan,
                                             const std::vector<int64_t>& layer_neurons,
                                             int64_t batch_tokens);
// Names and bytes, for messages.
std::string LedgerText(const std::map<std::string, uint64_t>& ledger);
// Bytes of one neuron in device memory.
uint64_t DeviceNeuronBytes(const GgufFile& file, const LoadPlan& plan);

// `plan` is of `file`, before LeaveToDevice; passes have at most batch_tokens tokens. Constructors
// throw Error(kUnsupported) for models whose FFNs cannot lie on a device.
struct PlacedNeurons {
  accel::DeviceFfnShape shape;         // of all FFNs, layer by layer and there expert by expert
  int64_t neurons_of_ffn = 0;          // in all
  std::vector<int64_t> layer_neurons;  // of each FFN of a layer, on the device

  // The same number of each FFN in `bytes` of the device: `asked`, or as many as fit. Throws
  // Error(kOutOfBudget), naming the memory that would do, and Error(kInvalidArgument) for a number
  // that makes no sense.
  PlacedNeurons(const GgufFile& file, const LoadPlan& plan, int64_t batch_tokens,
                const accel::DeviceInfo& info, uint64_t bytes, std::optional<int64_t> asked);
  // As planned; whether its ledger is as planned is the caller's to see. Throws
  // Error(kInvalidArgument) for a plan of another model.
  PlacedNeurons(const GgufFile& file, const LoadPlan& plan, int64_t batch_tokens,
                const accel::DeviceInfo& info, const PlannedDevice& planned);

  // As the device's ledger will be.
  std::map<std::string, uint64_t> Ledger() const;
  // What one neuron of each FFN takes, with scratch.
  static uint64_t LeastBytes(const GgufFile& file, const LoadPlan& plan, int64_t batch_tokens);

  // Reads the neurons, checks and uploads them. Throws Error(kCorrupt), Error(kIo).
  void Fill(const GgufFile& file, const LoadPlan& plan, accel::DeviceFfns& device,
            const ProgressFn& progress) const;
};

}  // namespace hearth
