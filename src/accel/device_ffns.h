// The hottest neurons of every FFN in a device's memory, and what they add to some tokens (P1
// §5.3).
//
// A packed file sorts neurons by how often they fire, so what lies on the device of an FFN is its
// first neurons. A plan says how many each FFN has there. The device keeps a neuron's rows and
// bias, not what pads its bundle.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "accel/device.h"
#include "accel/device_commands.h"
#include "accel/neuron_kernels.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace hearth::accel {

// How the rows of a neuron lie in device memory: bytes from its start.
struct DeviceNeuronLayout {
  DType gate_type = DType::kF16;
  DType up_type = DType::kF16;
  DType down_type = DType::kF16;
  int64_t gate = 0;
  int64_t up = -1;    // -1: an FFN of two matrices, whose first one is the gate
  int64_t bias = -1;  // of the gate, a float; -1: none
  int64_t down = 0;
  int64_t stride = 0;  // from one neuron to the next
};

struct DeviceFfnShape {
  DeviceNeuronLayout layout;
  int64_t hidden = 0;
  std::vector<int64_t> neurons;  // of each FFN, the first ones, which are on the device
  int64_t max_tokens = 1;        // of one launch

  int64_t num_ffns() const { return std::ssize(neurons); }
  int64_t most_neurons() const;  // of an FFN
  int64_t all_neurons() const;
};

// Some tokens of one FFN. Host memory must stay as it is until the next Wait.
struct DeviceFfnWork {
  int64_t ffn = 0;
  DeviceActivation activation;
  FloatView x;  // [tokens][hidden], one row right after the other
  // Neurons of the device, ascending: token t computes lists[t * neurons + i] for i < counts[t],
  // `neurons` being those of the FFN.
  // Without lists every token computes all neurons of the device.
  std::span<const int32_t> lists;
  std::span<const int32_t> counts;
  FloatView out;  // like x; written: what the neurons add
  // Where wanted, what the gates and the factors of all of them are, [tokens][neurons]; only
  // without lists.
  std::span<float> gates, factors;
};

// One thread at a time. Calls throw what the device does.
class DeviceFfns {
 public:
  // Builds the kernels and makes all buffers, charged to the device's memory as "neurons" and
  // "scratch". Some FFN has neurons there. Throws Error(kUnsupported) for types without kernels,
  // and what Device::MakeBuffer does. The device must outlive it.
  DeviceFfns(Device& device, const DeviceFfnShape& shape);

  // What the constructor charges.
  static uint64_t NeuronBytes(const DeviceFfnShape& shape);
  static uint64_t ScratchBytes(const DeviceFfnShape& shape);
  // How many neurons of every FFN fit into `bytes` with the scratch, at most `all`, with an FFN in
  // one buffer of at most max_buffer_bytes. Of shape.neurons only their number is looked at.
  static int64_t MostNeurons(DeviceFfnShape shape, int64_t all, uint64_t bytes,
                             uint64_t max_buffer_bytes);

  // Uploads neurons first, first + 1, ... of an FFN, which lie as shape().layout says. Returns when
  // that is done.
  void Fill(int64_t ffn, int64_t first, std::span<const std::byte> neurons);

  // Sends at most shape().max_tokens tokens to the device and returns. The FFN has neurons there.
  void Launch(const DeviceFfnWork& work);
  // Returns when all that was launched is done and in host memory.
  void Wait() { commands_.Wait(); }
  // The same after an error of somebody else, so that host memory is free again.
  void Abandon() noexcept { commands_.Abandon(); }

  // See DeviceCommands.
  void Trace(DeviceTrace& trace) { commands_.Trace(trace); }
  DeviceTrace* trace() const { return commands_.trace(); }

  const DeviceFfnShape& shape() const { return shape_; }
  Device& device() const { return device_; }
  // Neurons computed so far: listed ones, a token at a time.
  int64_t neurons_computed() const { return neurons_computed_; }

 private:
  struct Scratch;  // sizes of the buffers below
  NeuronKernels& KernelsOf(DType type) { return kernels_.at(type); }
  DeviceRows RowsOf(int64_t ffn, int64_t offset, int64_t bias = -1) const;

  Device& device_;
  const DeviceFfnShape shape_;
  std::map<DType, NeuronKernels> kernels_;
  std::vector<std::unique_ptr<DeviceBuffer>> neurons_;     // of each FFN; null: it has none
  std::vector<std::unique_ptr<DeviceBuffer>> all_counts_;  // how many they are; null: none
  std::unique_ptr<DeviceBuffer> x_, lists_, counts_, all_, gates_, factors_, partial_, out_;
  DeviceCommands commands_;  // after the buffers: none is left before they are destroyed
  int64_t neurons_computed_ = 0;
};

}  // namespace hearth::accel
