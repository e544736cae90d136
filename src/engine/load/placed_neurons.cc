#include "engine/load/placed_neurons.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/rounding.h"
#include "base/units.h"
#include "pass/hybrid_ffn.h"

namespace hearth {
namespace {

using accel::DeviceFfns;
using accel::DeviceFfnShape;
using accel::DeviceNeuronLayout;

// Rows begin on a multiple of this, as devices read them fastest.
constexpr uint64_t kRowAlignment = 32;
// Bytes of bundles that are read and uploaded at a time.
constexpr uint64_t kUploadBytes = uint64_t{4} << 20;
// One part of a bundle, and where it goes.
struct CopiedPart {
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t bytes = 0;
};

// What of a bundle lies on the device.
struct CopiedNeuron {
  DeviceNeuronLayout layout;
  std::vector<CopiedPart> parts;

  explicit CopiedNeuron(const BundleLayout& bundle) {
    layout.gate_type = bundle.Part(BundleRole::kGate).dtype;
    layout.down_type = bundle.Part(BundleRole::kDown).dtype;
    layout.up_type = layout.gate_type;
    layout.gate = Place(bundle.Part(BundleRole::kGate));
    if (const BundlePart* const bias = bundle.FindPart(BundleRole::kBias)) {
      layout.bias = Place(*bias);
    }
    if (const BundlePart* const up = bundle.FindPart(BundleRole::kUp)) {
      layout.up_type = up->dtype;
      layout.up = Place(*up);
    }
    layout.down = Place(bundle.Part(BundleRole::kDown));
  }

  void Copy(std::span<const std::byte> bundle, std::byte* to) const {
    for (const CopiedPart& part : parts) std::memcpy(to + part.to, &bundle[part.from], part.bytes);
  }

 private:
  int64_t Place(const BundlePart& part) {
    const auto at = static_cast<uint64_t>(layout.stride);
    parts.push_back({part.offset, at, part.bytes});
    layout.stride = static_cast<int64_t>(RoundUp(at + part.bytes, kRowAlignment));
    return static_cast<int64_t>(at);
  }
};

std::vector<const ResidentTensor*> BundlesOf(const LoadPlan& plan) {
  std::vector<const ResidentTensor*> bundles;
  for (const ResidentTensor& tensor : plan.tensors) {
    if (tensor.bundles) bundles.push_back(&tensor);
  }
  return bundles;
}

[[noreturn]] void RefuseModel(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kUnsupported, path, why + "; --device none runs it on the processor");
}

// Throws Error(kUnsupported) for a model whose FFNs cannot lie on a device. Returns its bundles.
std::vector<const ResidentTensor*> CheckedBundles(const std::string& path, const LoadPlan& plan) {
  const std::vector<const ResidentTensor*> bundles = BundlesOf(plan);
  const ResidentTensor& first = *bundles.front();
  for (const ResidentTensor* tensor : bundles) {
    if (tensor->bundles->layout != first.bundles->layout || tensor->decl.rows != first.decl.rows ||
        tensor->decl.experts != first.decl.experts) {
      RefuseModel(path,
                  "a device takes no part of a packed model whose layers have different FFNs");
    }
  }
  return bundles;
}

// Repeats each layer's number for every FFN of the layer.
std::vector<int64_t> OfEachFfn(const std::vector<const ResidentTensor*>& bundles,
                               const std::vector<int64_t>& by_layer) {
  std::vector<int64_t> by_ffn;
  for (size_t l = 0; l < by_layer.size(); ++l) {
    by_ffn.insert(by_ffn.end(), static_cast<size_t>(bundles[l]->decl.experts), by_layer[l]);
  }
  return by_ffn;
}

// Without neurons.
DeviceFfnShape ShapeOf(const LoadPlan& plan, const std::vector<const ResidentTensor*>& bundles,
                       int64_t batch_tokens) {
  return {.layout = CopiedNeuron(bundles.front()->bundles->layout).layout,
          .hidden = plan.spec.hidden_size,
          .neurons = OfEachFfn(bundles, std::vector<int64_t>(bundles.size(), 0)),
          .max_tokens = std::min(batch_tokens, HybridFfn::kTokensOfLaunch)};
}

uint64_t NeededBytes(const DeviceFfnShape& shape) {
  return DeviceFfns::NeuronBytes(shape) + DeviceFfns::ScratchBytes(shape);
}

std::map<std::string, uint64_t> LedgerOf(const DeviceFfnShape& shape) {
  return {{"neurons", DeviceFfns::NeuronBytes(shape)},
          {"scratch", DeviceFfns::ScratchBytes(shape)}};
}

}  // namespace

std::string LedgerText(const std::map<std::string, uint64_t>& ledger) {
  std::string text;
  for (const auto& [name, bytes] : ledger) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, bytes);
  }
  return text;
}

namespace {

void RefuseBuffer(int64_t neurons, const DeviceFfnShape& shape, const accel::DeviceInfo& info) {
  const auto buffer = static_cast<uint64_t>(neurons * shape.layout.stride);
  if (buffer <= info.max_buffer_bytes) return;
  throw Error(ErrorCode::kOutOfBudget, info.name,
              fmt::format("{} neurons of an FFN in one buffer", neurons),
              "at most " + FormatSize(info.max_buffer_bytes), FormatSize(buffer));
}

[[noreturn]] void RefuseNeurons(DeviceFfnShape shape, int64_t wanted, uint64_t bytes,
                                const accel::DeviceInfo& info) {
  RefuseBuffer(wanted, shape, info);
  std::fill(shape.neurons.begin(), shape.neurons.end(), wanted);
  const uint64_t mib = (NeededBytes(shape) + (uint64_t{1} << 20) - 1) >> 20;
  throw Error(ErrorCode::kOutOfBudget, Field{"device_memory"},
              fmt::format("{} neuron{} of each of {} FFNs and scratch for them", wanted,
                          wanted == 1 ? "" : "s", shape.num_ffns()),
              fmt::format("at least {}M", mib), FormatSize(bytes));
}

// How many neurons of every FFN the device gets.
int64_t ChooseNeurons(std::optional<int64_t> asked, const DeviceFfnShape& shape, int64_t all,
                      uint64_t bytes, const accel::DeviceInfo& info) {
  if (asked && (*asked < 1 || *asked > all)) {
    throw Error(ErrorCode::kInvalidArgument, Field{"device_neurons"},
                "neurons of every FFN on the device", fmt::format("at most {}", all),
                std::to_string(*asked));
  }
  const int64_t most = DeviceFfns::MostNeurons(shape, all, bytes, info.max_buffer_bytes);
  const int64_t wanted = asked.value_or(std::max<int64_t>(most, 1));
  if (wanted > most) RefuseNeurons(shape, wanted, bytes, info);
  return wanted;
}

void RefusePlan(const char* what, const std::string& expected, const std::string& found) {
  throw Error(ErrorCode::kInvalidArgument, "plan", what, expected, found);
}

void CheckPlanned(const PlannedDevice& planned, size_t layers, int64_t all,
                  const accel::DeviceInfo& info, const DeviceFfnShape& shape) {
  if (planned.layer_neurons.size() != layers) {
    RefusePlan("layers with neurons on a device", std::to_string(layers),
               std::to_string(planned.layer_neurons.size()));
  }
  const int64_t most =
      *std::max_element(planned.layer_neurons.begin(), planned.layer_neurons.end());
  if (most > all) {
    RefusePlan("neurons of an FFN on the device", fmt::format("at most {}", all),
               std::to_string(most));
  }
  RefuseBuffer(most, shape, info);
}

}  // namespace

std::map<std::string, uint64_t> DeviceLedger(const GgufFile& file, const LoadPlan& plan,
                                             const std::vector<int64_t>& layer_neurons,
                                             int64_t batch_tokens) {
  const std::vector<const ResidentTensor*> bundles = CheckedBundles(file.path(), plan);
  DeviceFfnShape shape = ShapeOf(plan, bundles, batch_tokens);
  shape.neurons = OfEachFfn(bundles, layer_neurons);
  return LedgerOf(shape);
}

uint64_t DeviceNeuronBytes(const GgufFile& file, const LoadPlan& plan) {
  const std::vector<const ResidentTensor*> bundles = CheckedBundles(file.path(), plan);
  return static_cast<uint64_t>(ShapeOf(plan, bundles, 1).layout.stride);
}

void LeaveToDevice(LoadPlan& plan, std::span<const int64_t> layer_neurons) {
  for (ResidentTensor& tensor : plan.tensors) {
    if (!tensor.bundles) continue;
    const int64_t neurons = layer_neurons[static_cast<size_t>(tensor.bundles->layer)];
    if (neurons == 0) continue;
    tensor.decl.of = tensor.decl.rows;
    tensor.decl.first = neurons;
    tensor.decl.rows -= neurons;
    tensor.bytes = tensor.neurons() * tensor.bundles->bytes_of_neuron();
  }
  RemoveTensors(plan, [](const ResidentTensor&) { return false; });  // all move up
}

PlacedNeurons::PlacedNeurons(const GgufFile& file, const LoadPlan& plan, int64_t batch_tokens,
                             const accel::DeviceInfo& info, uint64_t bytes,
                             std::optional<int64_t> asked) {
  const std::vector<const ResidentTensor*> bundles = CheckedBundles(file.path(), plan);
  shape = ShapeOf(plan, bundles, batch_tokens);
  neurons_of_ffn = bundles.front()->decl.rows;
  layer_neurons.assign(bundles.size(), ChooseNeurons(asked, shape, neurons_of_ffn, bytes, info));
  shape.neurons = OfEachFfn(bundles, layer_neurons);
}

PlacedNeurons::PlacedNeurons(const GgufFile& file, const LoadPlan& plan, int64_t batch_tokens,
                             const accel::DeviceInfo& info, const PlannedDevice& planned) {
  const std::vector<const ResidentTensor*> bundles = CheckedBundles(file.path(), plan);
  shape = ShapeOf(plan, bundles, batch_tokens);
  neurons_of_ffn = bundles.front()->decl.rows;
  CheckPlanned(planned, bundles.size(), neurons_of_ffn, info, shape);
  layer_neurons = planned.layer_neurons;
  shape.neurons = OfEachFfn(bundles, layer_neurons);
}

std::map<std::string, uint64_t> PlacedNeurons::Ledger() const { return LedgerOf(shape); }

uint64_t PlacedNeurons::LeastBytes(const GgufFile& file, const LoadPlan& plan,
                                   int64_t batch_tokens) {
  const std::vector<const ResidentTensor*> bundles = CheckedBundles(file.path(), plan);
  DeviceFfnShape shape = ShapeOf(plan, bundles, batch_tokens);
  std::fill(shape.neurons.begin(), shape.neurons.end(), 1);
  return NeededBytes(shape);
}

void PlacedNeurons::Fill(const GgufFile& file, const LoadPlan& plan, DeviceFfns& device,
                         const ProgressFn& progress) const {
  const std::vector<const ResidentTensor*> bundles = BundlesOf(plan);
  const BundleLayout& layout = bundles.front()->bundles->layout;
  const CopiedNeuron copied(layout);
  const auto stride = static_cast<uint64_t>(copied.layout.stride);
  const uint64_t most = std::max<uint64_t>(kUploadBytes / layout.stride, 1);
  const uint64_t at_once = std::min(most, static_cast<uint64_t>(shape.most_neurons()));
  std::vector<std::byte> stored(at_once * layout.stride);
  std::vector<std::byte> packed(at_once * stride);
  const uint64_t total = static_cast<uint64_t>(shape.all_neurons()) * layout.stride;
  uint64_t done = 0;
  const auto experts = static_cast<size_t>(bundles.front()->decl.experts);
  for (size_t ffn = 0; ffn < shape.neurons.size(); ++ffn) {
    const ResidentTensor& tensor = *bundles[ffn / experts];
    const uint64_t begin = ffn % experts * static_cast<uint64_t>(tensor.decl.rows);
    const auto all = static_cast<uint64_t>(shape.neurons[ffn]);
    for (uint64_t first = 0; first < all; first += most) {
      const uint64_t count = std::min(most, all - first);
      const std::span<std::byte> bytes = std::span(stored).first(count * layout.stride);
      file.ReadTensor(*tensor.stored, (begin + first) * layout.stride, bytes);
      for (uint64_t i = 0; i < count; ++i) {
        const std::span<const std::byte> bundle = bytes.subspan(i * layout.stride, layout.stride);
        if (!BundleIsIntact(layout, bundle)) {
          throw Error(ErrorCode::kCorrupt, file.path(),
                      fmt::format("neuron {} of {} is damaged: its check does not fit",
                                  begin + first + i, tensor.decl.name));
        }
        copied.Copy(bundle, packed.data() + i * stride);
      }
      device.Fill(static_cast<int64_t>(ffn), static_cast<int64_t>(first),
                  std::span(packed).first(count * stride));
      done += bytes.size();
      if (progress) progress(done, total);
    }
  }
}

}  // namespace hearth
