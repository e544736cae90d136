#include "accel/device_ffns.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace hearth::accel {
namespace {

constexpr uint64_t kNumberBytes = 4;  // of a float and of an int32

}  // namespace

// Numbers of each buffer.
struct DeviceFfns::Scratch {
  explicit Scratch(const DeviceFfnShape& shape)
      : tokens(static_cast<uint64_t>(shape.max_tokens)),
        x(tokens * static_cast<uint64_t>(shape.hidden)),
        per_neuron(tokens * static_cast<uint64_t>(shape.most_neurons())),
        partial(x * static_cast<uint64_t>(NeuronKernels::kSlices)) {}

  const uint64_t tokens;
  const uint64_t x;           // and out
  const uint64_t per_neuron;  // lists, gates, factors
  const uint64_t partial;

  uint64_t bytes(const DeviceFfnShape& shape) const {
    const auto all = static_cast<uint64_t>(shape.most_neurons() + shape.num_ffns());
    return kNumberBytes * (2 * x + 3 * per_neuron + partial + tokens + all);
  }
};

int64_t DeviceFfnShape::most_neurons() const {
  return *std::max_element(neurons.begin(), neurons.end());
}

int64_t DeviceFfnShape::all_neurons() const {
  return std::accumulate(neurons.begin(), neurons.end(), int64_t{0});
}

uint64_t DeviceFfns::NeuronBytes(const DeviceFfnShape& shape) {
  return static_cast<uint64_t>(shape.all_neurons() * shape.layout.stride);
}

uint64_t DeviceFfns::ScratchBytes(const DeviceFfnShape& shape) {
  return Scratch(shape).bytes(shape);
}

int64_t DeviceFfns::MostNeurons(DeviceFfnShape shape, int64_t all, uint64_t bytes,
                                uint64_t max_buffer_bytes) {
  // Both grow with the neurons by the same number of bytes each.
  std::fill(shape.neurons.begin(), shape.neurons.end(), 0);
  const uint64_t fixed = ScratchBytes(shape);
  std::fill(shape.neurons.begin(), shape.neurons.end(), 1);
  const uint64_t each = NeuronBytes(shape) + ScratchBytes(shape) - fixed;
  const uint64_t fit = bytes > fixed ? (bytes - fixed) / each : 0;
  const uint64_t in_buffer = max_buffer_bytes / static_cast<uint64_t>(shape.layout.stride);
  return static_cast<int64_t>(std::min({fit, in_buffer, static_cast<uint64_t>(all)}));
}

DeviceFfns::DeviceFfns(Device& device, const DeviceFfnShape& shape)
    : device_(device), shape_(shape), commands_(device) {
  for (const DType type : {shape.layout.gate_type, shape.layout.up_type, shape.layout.down_type}) {
    kernels_.try_emplace(type, device, type);
  }
  const Scratch scratch(shape);
  const auto make = [&](uint64_t numbers) {
    return device.MakeBuffer("scratch", numbers * kNumberBytes);
  };
  x_ = make(scratch.x);
  out_ = make(scratch.x);
  lists_ = make(scratch.per_neuron);
  gates_ = make(scratch.per_neuron);
  factors_ = make(scratch.per_neuron);
  counts_ = make(scratch.tokens);
  partial_ = make(scratch.partial);
  all_ = make(static_cast<uint64_t>(shape.most_neurons()));
  for (const int64_t neurons : shape.neurons) {
    const auto bytes = static_cast<uint64_t>(neurons * shape.layout.stride);
    neurons_.push_back(neurons == 0 ? nullptr : device.MakeBuffer("neurons", bytes));
    all_counts_.push_back(make(1));
  }
  DeviceQueue& queue = commands_.queue();
  std::vector<int32_t> numbers(static_cast<size_t>(shape.most_neurons()));
  std::iota(numbers.begin(), numbers.end(), 0);
  queue.Upload(std::as_bytes(std::span(numbers)), *all_);
  const std::vector<int32_t> counts(shape.neurons.begin(), shape.neurons.end());
  for (size_t ffn = 0; ffn < counts.size(); ++ffn) {
    queue.Upload(std::as_bytes(std::span(counts).subspan(ffn, 1)), *all_counts_[ffn]);
  }
  queue.Finish();
}

void DeviceFfns::Fill(int64_t ffn, int64_t first, std::span<const std::byte> neurons) {
  commands_.queue().Upload(neurons, *neurons_.at(static_cast<size_t>(ffn)),
                           static_cast<uint64_t>(first * shape_.layout.stride));
  commands_.queue().Finish();
}

DeviceRows DeviceFfns::RowsOf(int64_t ffn, int64_t offset, int64_t bias) const {
  return {.buffer = neurons_.at(static_cast<size_t>(ffn)).get(),
          .first = offset,
          .stride = shape_.layout.stride,
          .bias = bias,
          .neurons = shape_.neurons[static_cast<size_t>(ffn)]};
}

void DeviceFfns::Launch(const DeviceFfnWork& work) {
  const int64_t tokens = work.x.rows;
  const bool has_lists = !work.counts.empty();
  if (tokens < 1 || tokens > shape_.max_tokens || work.out.rows != tokens ||
      work.x.cols != shape_.hidden || work.out.cols != shape_.hidden ||
      (has_lists && std::ssize(work.counts) != tokens)) {
    throw Error(ErrorCode::kInternal, "DeviceFfns", "tokens that do not fit");
  }
  const int64_t neurons = shape_.neurons.at(static_cast<size_t>(work.ffn));
  if (neurons == 0) throw Error(ErrorCode::kInternal, "DeviceFfns", "an FFN without neurons here");
  DeviceQueue& queue = commands_.queue();
  commands_.UploadRows(work.x, *x_);
  DeviceLists lists = {all_.get(), all_counts_[static_cast<size_t>(work.ffn)].get(), 0, neurons};
  int64_t listed = tokens * neurons;
  if (has_lists) {
    queue.Upload(std::as_bytes(work.lists), *lists_);
    queue.Upload(std::as_bytes(work.counts), *counts_);
    lists = {lists_.get(), counts_.get(), neurons,
             *std::max_element(work.counts.begin(), work.counts.end())};
    listed = std::accumulate(work.counts.begin(), work.counts.end(), int64_t{0});
  }
  const DeviceNeuronLayout& layout = shape_.layout;
  const DeviceTokens of_tokens = {x_.get(), tokens, shape_.hidden};
  KernelsOf(layout.gate_type)
      .Gates(queue, RowsOf(work.ffn, layout.gate, layout.bias), lists, of_tokens, *gates_);
  const DeviceRows up = RowsOf(work.ffn, layout.up);
  KernelsOf(layout.up_type)
      .MakeFactors(queue,
                   {layout.up < 0 ? nullptr : &up, work.activation, gates_.get(), factors_.get()},
                   lists, of_tokens);
  const DeviceRows down = RowsOf(work.ffn, layout.down);
  KernelsOf(layout.down_type)
      .AddDown(queue, {&down, factors_.get(), partial_.get(), out_.get()}, lists, tokens,
               shape_.hidden);
  commands_.DownloadRows(*out_, work.out);
  queue.Download(*gates_, 0, std::as_writable_bytes(work.gates));
  queue.Download(*factors_, 0, std::as_writable_bytes(work.factors));
  commands_.SetLayer(work.ffn);
  commands_.AddTokens(tokens);
  commands_.Send();
  neurons_computed_ += listed;
}

}  // namespace hearth::accel
