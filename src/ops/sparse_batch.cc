#include "ops/sparse_batch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/scratch_places.h"
#include "tensor/row_groups.h"

namespace hearth {
namespace {

using kernels::GroupQ8;
using kernels::KernelTable;

// Neurons whose rows stay in a core's cache while token after token meets them: as many as fit,
// because a kernel's first rows of a list are those that it has not asked for ahead.
constexpr int64_t kNeuronsAtHand = 256;
// Those that are handed out together.
constexpr int64_t kGrain = 64;
static_assert(SparseBatch::kMostTokens <= 32, "a neuron's tokens are the bits of a word");

template <class T>
using AtHand = std::array<T, kNeuronsAtHand>;

}  // namespace

struct SparseBatch::Places {
  size_t x, tokens_of, values, neurons, num_tokens, end;

  explicit Places(const SparseBatchShape& shape) {
    ScratchPlaces scratch;
    x = scratch.Take(shape.max_tokens * RowGroupCount(shape.max_hidden), sizeof(GroupQ8));
    tokens_of = scratch.Take(shape.max_neurons, sizeof(uint32_t));
    values = scratch.Take(shape.max_neurons * shape.max_tokens, sizeof(float));
    neurons = scratch.Take(shape.max_neurons, sizeof(int32_t));
    num_tokens = scratch.Take(shape.max_neurons, sizeof(uint8_t));
    end = scratch.used();
  }
};

// The neurons of a cluster that one token lists.
struct SparseBatch::OfToken {
  AtHand<int32_t> neurons;
  AtHand<int32_t> rows;
  int64_t count = 0;

  OfToken(const SparseBatch& batch, const Cluster& cluster, int64_t token) {
    for (int64_t i = 0; i < cluster.count; ++i) {
      const int32_t neuron = cluster.neurons[i];
      neurons[static_cast<size_t>(count)] = neuron;
      rows[static_cast<size_t>(count)] = cluster.rows[i];
      count += batch.tokens_of_[neuron] >> token & 1;
    }
  }
};

uint64_t SparseBatch::ChargedBytes(const SparseBatchShape& shape) {
  return Buffer::ChargedBytes(Places(shape).end);
}

SparseBatch::SparseBatch(Budget& budget, const SparseBatchShape& shape)
    : shape_(shape), memory_(budget, "activations", Places(shape).end) {
  if (shape.max_tokens < 1 || shape.max_tokens > kMostTokens) {
    throw Error(ErrorCode::kInternal, "SparseBatch", "more tokens than a word has bits");
  }
  const Places at(shape);
  std::byte* base = memory_.data();
  x_groups_ = reinterpret_cast<GroupQ8*>(base + at.x);
  tokens_of_ = reinterpret_cast<uint32_t*>(base + at.tokens_of);
  values_ = reinterpret_cast<float*>(base + at.values);
  neurons_ = reinterpret_cast<int32_t*>(base + at.neurons);
  num_tokens_ = reinterpret_cast<uint8_t*>(base + at.num_tokens);
}

// Which tokens list a neuron, for all neurons.
void SparseBatch::Unite(int64_t neurons, Lists listed) {
  max_neuron_ = neurons;
  if (listed.empty()) {
    std::fill_n(tokens_of_, neurons, ~uint32_t{0} >> (kMostTokens - x_.rows));
    num_listed_ = neurons * x_.rows;
    return;
  }
  std::fill_n(tokens_of_, neurons, 0u);
  num_listed_ = 0;
  for (size_t t = 0; t < listed.size(); ++t) {
    for (const int32_t neuron : listed[t]) tokens_of_[neuron] |= uint32_t{1} << t;
    num_listed_ += std::ssize(listed[t]);
  }
}

void SparseBatch::PackNeurons() {
  num_neurons_ = 0;
  for (int64_t n = 0; n < max_neuron_; ++n) {
    if (tokens_of_[n] == 0) continue;
    neurons_[num_neurons_] = static_cast<int32_t>(n);
    num_tokens_[num_neurons_++] = static_cast<uint8_t>(std::popcount(tokens_of_[n]));
  }
}

void SparseBatch::Begin(Compute& compute, const FfnNeurons& ffn, int64_t neurons,
                        const Tokens& tokens) {
  const FloatView x = tokens.x;
  if (x.rows > shape_.max_tokens || x.cols > shape_.max_hidden || x.cols != ffn.down.cols ||
      neurons > shape_.max_neurons ||
      (!tokens.listed.empty() && std::ssize(tokens.listed) != x.rows)) {
    throw Error(ErrorCode::kInternal, "SparseBatch", "tokens that do not fit the scratch");
  }
  x_ = x;
  out_ = tokens.out;
  skips_silent_ = tokens.skip_silent && CanSkipNeurons(ffn.activation);
  silent_ = SilentGatesOf(ffn.activation, ffn.threshold);
  for (int64_t t = 0; t < x.rows; ++t) {
    inputs_[static_cast<size_t>(t)] =
        PrepareInput(compute.kernels(), ffn, x.row(t), x_groups_ + t * RowGroupCount(x.cols));
  }
  Unite(neurons, tokens.listed);
  PackNeurons();
}

template <class Visit>
void SparseBatch::ForEachToken(const Cluster& cluster, Visit&& visit) const noexcept {
  for (int64_t first = 0; first < cluster.count; first += kNeuronsAtHand) {
    const Cluster at_hand = {cluster.neurons + first, cluster.rows + first,
                             std::min(kNeuronsAtHand, cluster.count - first)};
    for (int64_t token = 0; token < x_.rows; ++token) {
      const OfToken listed(*this, at_hand, token);
      if (listed.count > 0) visit(token, listed);
    }
  }
}

void SparseBatch::MultiplyGates(const KernelTable& table, const RowsView& gates,
                                const Cluster& cluster) noexcept {
  ForEachToken(cluster, [&](int64_t token, const OfToken& listed) {
    AtHand<float> products;
    hearth::MultiplyGates(table, gates, inputs_[static_cast<size_t>(token)], listed.rows.data(),
                          listed.count, products.data());
    for (size_t i = 0; i < static_cast<size_t>(listed.count); ++i) {
      values_of(listed.neurons[i])[token] = products[i];
    }
  });
}

void SparseBatch::ScanGates(Compute& compute, const RowsView& gates) {
  compute.team().ParallelFor(num_neurons_, kGrain, [&](int64_t begin, int64_t end, int) {
    const int32_t* neurons = neurons_ + begin;
    MultiplyGates(compute.kernels(), gates, {neurons, neurons, end - begin});
    for (int64_t i = begin; i < end; ++i) LeaveFiring(neurons_[i]);
  });
  PackNeurons();
}

bool SparseBatch::LeaveFiring(int32_t neuron) noexcept {
  uint32_t& bits = tokens_of_[neuron];
  const float* values = values_of(neuron);
  for (uint32_t left = skips_silent_ ? bits : 0; left != 0; left &= left - 1) {
    const int token = std::countr_zero(left);
    if (silent_.Contains(values[token])) bits &= ~(uint32_t{1} << token);
  }
  return bits != 0;
}

int64_t SparseBatch::TakeSilent(const Cluster& cluster, int32_t* fired) noexcept {
  int64_t count = 0;
  for (int64_t i = 0; i < cluster.count; ++i) {
    fired[count] = static_cast<int32_t>(i);
    count += LeaveFiring(cluster.neurons[i]) ? 1 : 0;
  }
  return count;
}

ClusterCounts SparseBatch::Finish(const KernelTable& table, const FfnNeurons& ffn,
                                  const Cluster& cluster, bool knows_gates) noexcept {
  ClusterCounts counts;
  ForEachToken(cluster, [&](int64_t token, const OfToken& listed) {
    AtHand<int32_t> fired, active;
    AtHand<float> gate, up, factors;
    const NeuronInput& input = inputs_[static_cast<size_t>(token)];
    const auto count = static_cast<size_t>(listed.count);
    if (knows_gates) {
      for (size_t i = 0; i < count; ++i) gate[i] = values_of(listed.neurons[i])[token];
    } else {
      hearth::MultiplyGates(table, ffn.gate, input, listed.rows.data(), listed.count, gate.data());
    }
    const ClusterCounts of_token =
        FinishCluster(table, ffn, input, skips_silent_ ? &silent_ : nullptr,
                      {listed.rows.data(), listed.count, gate.data(), up.data(), fired.data(),
                       active.data(), factors.data()});
    size_t next_fired = 0, next = 0;
    for (size_t i = 0; i < count; ++i) {
      const int32_t neuron = listed.neurons[i], row = listed.rows[i];
      const bool fires =
          next_fired < static_cast<size_t>(of_token.fired) && fired[next_fired] == row;
      const bool is_active = next < static_cast<size_t>(of_token.active) && active[next] == row;
      next_fired += fires ? 1 : 0;
      values_of(neuron)[token] = is_active ? factors[next++] : 0.0f;
      if (!fires) tokens_of_[neuron] &= ~(uint32_t{1} << token);
    }
    counts.fired += of_token.fired;
    counts.active += of_token.active;
  });
  return counts;
}

void SparseBatch::AddDown(const KernelTable& table, const RowsView& down, const Cluster& cluster,
                          int64_t begin_group, int64_t end_group) noexcept {
  const auto add = table.row_scaled_add[static_cast<size_t>(down.dtype)];
  ForEachToken(cluster, [&](int64_t token, const OfToken& listed) {
    AtHand<int32_t> rows;
    AtHand<float> factors;
    int64_t count = 0;
    for (size_t i = 0; i < static_cast<size_t>(listed.count); ++i) {
      const float factor = values_of(listed.neurons[i])[token];
      rows[static_cast<size_t>(count)] = listed.rows[i];
      factors[static_cast<size_t>(count)] = factor;
      count += !skips_silent_ || factor != 0.0f ? 1 : 0;
    }
    add({{down.data, down.stride, rows.data(), count},
         factors.data(),
         down.cols,
         begin_group,
         end_group,
         out_.row(token)});
  });
}

void SparseBatch::ListFired(int64_t token, std::vector<int32_t>& neurons) const {
  for (const int32_t neuron : this->neurons()) {
    if ((tokens_of_[neuron] >> token & 1) != 0) neurons.push_back(neuron);
  }
}

SparseFfnCounts SparseBatch::Run(Compute& compute, const FfnNeurons& ffn, const Tokens& tokens,
                                 bool adds) {
  CheckNeurons(ffn, shape_.max_hidden, shape_.max_neurons);
  if (!adds) FillZero(tokens.out);
  const KernelTable& table = compute.kernels();
  Begin(compute, ffn, ffn.gate.rows, tokens);
  std::atomic<int64_t> fired{0}, active{0};
  compute.team().ParallelFor(num_neurons_, kGrain, [&](int64_t begin, int64_t end, int) {
    const int32_t* neurons = neurons_ + begin;
    const ClusterCounts counts = Finish(table, ffn, {neurons, neurons, end - begin}, false);
    fired.fetch_add(counts.fired, std::memory_order_relaxed);
    active.fetch_add(counts.active, std::memory_order_relaxed);
  });
  const int64_t groups = RowGroupCount(ffn.down.cols);
  const int64_t grain = (groups + compute.threads() - 1) / compute.threads();
  compute.team().ParallelFor(groups, grain, [&](int64_t begin, int64_t end, int) {
    AddDown(table, ffn.down, {neurons_, neurons_, num_neurons_}, begin, end);
  });
  return {.gate = num_listed_, .up = fired, .active = active};
}

}  // namespace hearth
