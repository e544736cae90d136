#include "pipeline/neuron_work.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tensor/row_groups.h"

namespace hearth {
namespace {

template <class T>
using OfCluster = std::array<T, ReadyNeurons::kMost>;

// The neurons at some positions.
struct NamedNeurons {
  OfCluster<int32_t> neurons;

  NamedNeurons(std::span<const int32_t> listed, const ReadyNeurons& ready) {
    for (int64_t i = 0; i < ready.count; ++i) {
      neurons[static_cast<size_t>(i)] = listed[static_cast<size_t>(ready.positions[i])];
    }
  }
  SparseBatch::Cluster In(const ReadyNeurons& ready) const {
    return {neurons.data(), ready.slots, ready.count};
  }
};

}  // namespace

TokenWork::TokenWork(const kernels::KernelTable& table, const FfnNeurons& rows,
                     const NeuronInput& input, const TokenGates& known, const TokenScratch& scratch,
                     float* out)
    : NeuronWork(table, rows),
      input_(input),
      silent_(known.silent),
      next_gates_(known.products),
      scratch_(scratch),
      out_(out) {
  std::memset(out, 0, static_cast<size_t>(rows.down.cols) * sizeof(float));
}

void TokenWork::OnSegment() {
  gates_ = knows_gates_ ? next_gates_ : scratch_.gates;
  if (knows_gates_) next_gates_ += listed_.size();
}

void TokenWork::MultiplyGates(const ReadyNeurons& ready) noexcept {
  OfCluster<float> gate;
  hearth::MultiplyGates(table_, rows_.gate, input_, ready.slots, ready.count, gate.data());
  for (int64_t i = 0; i < ready.count; ++i) {
    scratch_.gates[ready.positions[i]] = gate[static_cast<size_t>(i)];
  }
}

int64_t TokenWork::TakeSilent(const ReadyNeurons& ready, int32_t* fired) noexcept {
  OfCluster<float> gate;
  for (int64_t i = 0; i < ready.count; ++i) {
    gate[static_cast<size_t>(i)] = scratch_.gates[ready.positions[i]];
    scratch_.factors[ready.positions[i]] = 0.0f;
  }
  return PackFired(table_, silent_, {ready.positions, gate.data(), ready.count}, fired,
                   gate.data());
}

ClusterCounts TokenWork::Finish(const ReadyNeurons& ready, bool knows_gates) noexcept {
  OfCluster<int32_t> fired, active;
  OfCluster<float> gate, up, factors;
  const NeuronCluster cluster = {ready.slots,  ready.count,   gate.data(),   up.data(),
                                 fired.data(), active.data(), factors.data()};
  if (knows_gates) {
    for (int64_t i = 0; i < ready.count; ++i) {
      gate[static_cast<size_t>(i)] = gates_[ready.positions[i]];
    }
  } else {
    hearth::MultiplyGates(table_, rows_.gate, input_, ready.slots, ready.count, gate.data());
  }
  const ClusterCounts counts = FinishCluster(table_, rows_, input_, silent_, cluster);
  int64_t next = 0;
  for (int64_t i = 0; i < ready.count; ++i) {
    const bool is_active = next < counts.active && cluster.active[next] == ready.slots[i];
    scratch_.factors[ready.positions[i]] = is_active ? cluster.factors[next++] : 0.0f;
  }
  return counts;
}

void TokenWork::AddDown(const int32_t* slots, int64_t begin, int64_t end, int64_t begin_group,
                        int64_t end_group) noexcept {
  const RowsView& down = rows_.down;
  const auto add = table_.row_scaled_add[static_cast<size_t>(down.dtype)];
  OfCluster<int32_t> rows;
  OfCluster<float> factors;
  while (begin < end) {
    int64_t count = 0;
    for (; begin < end && count < ReadyNeurons::kMost; ++begin) {
      rows[static_cast<size_t>(count)] = slots[begin];
      factors[static_cast<size_t>(count)] = scratch_.factors[begin];
      count += silent_ == nullptr || scratch_.factors[begin] != 0.0f ? 1 : 0;
    }
    add({{down.data, down.stride, rows.data(), count},
         factors.data(),
         down.cols,
         begin_group,
         end_group,
         out_});
  }
}

void BatchWork::MultiplyGates(const ReadyNeurons& ready) noexcept {
  batch_.MultiplyGates(table_, rows_.gate, NamedNeurons(listed_, ready).In(ready));
}

int64_t BatchWork::TakeSilent(const ReadyNeurons& ready, int32_t* fired) noexcept {
  const int64_t count = batch_.TakeSilent(NamedNeurons(listed_, ready).In(ready), fired);
  for (int64_t i = 0; i < count; ++i) fired[i] = ready.positions[fired[i]];
  return count;
}

ClusterCounts BatchWork::Finish(const ReadyNeurons& ready, bool knows_gates) noexcept {
  return batch_.Finish(table_, rows_, NamedNeurons(listed_, ready).In(ready), knows_gates);
}

void BatchWork::AddDown(const int32_t* slots, int64_t begin, int64_t end, int64_t begin_group,
                        int64_t end_group) noexcept {
  batch_.AddDown(table_, rows_.down, {listed_.data() + begin, slots + begin, end - begin},
                 begin_group, end_group);
}

}  // namespace hearth
