#include "ops/gate_scan.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/scratch_places.h"

namespace hearth {
namespace {

// Neurons that are handed out together: pieces of the section are multiples of it.
constexpr int64_t kScanGrain = 32;

}  // namespace

struct GateScan::Places {
  size_t gates, fired, all, end;

  explicit Places(int64_t max_neurons) {
    ScratchPlaces scratch;
    gates = scratch.Take(max_neurons, sizeof(float));
    fired = scratch.Take(max_neurons, sizeof(int32_t));
    all = scratch.Take(max_neurons, sizeof(int32_t));
    end = scratch.used();
  }
};

uint64_t GateScan::ChargedBytes(int64_t max_neurons) {
  return Buffer::ChargedBytes(Places(max_neurons).end);
}

GateScan::GateScan(Budget& budget, int64_t max_neurons)
    : memory_(budget, "activations", Places(max_neurons).end),
      pieces_(static_cast<size_t>((max_neurons + kScanGrain - 1) / kScanGrain)) {
  const Places at(max_neurons);
  gates_ = reinterpret_cast<float*>(memory_.data() + at.gates);
  fired_ = reinterpret_cast<int32_t*>(memory_.data() + at.fired);
  all_ = reinterpret_cast<int32_t*>(memory_.data() + at.all);
  std::iota(all_, all_ + max_neurons, 0);
}

void GateScan::Run(Compute& compute, const RowsView& gates, const NeuronInput& input,
                   std::optional<std::span<const int32_t>> listed, const SilentGates* silent) {
  const kernels::KernelTable& table = compute.kernels();
  const int32_t* list = listed ? listed->data() : all_;
  const int64_t count = listed ? static_cast<int64_t>(listed->size()) : gates.rows;
  num_pieces_ = 0;
  compute.team().ParallelFor(count, kScanGrain, [&](int64_t begin, int64_t end, int) {
    MultiplyGates(table, gates, input, list + begin, end - begin, gates_ + begin);
    const int64_t fired = PackFired(table, silent, {list + begin, gates_ + begin, end - begin},
                                    fired_ + begin, gates_ + begin);
    pieces_[num_pieces_.fetch_add(1, std::memory_order_relaxed)] = {begin, fired};
  });
  const auto last = pieces_.begin() + static_cast<ptrdiff_t>(num_pieces_.load());
  std::sort(pieces_.begin(), last,
            [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  num_fired_ = 0;
  for (auto piece = pieces_.begin(); piece != last; ++piece) {
    const auto fired = static_cast<size_t>(piece->fired);
    std::memmove(fired_ + num_fired_, fired_ + piece->begin, fired * sizeof(int32_t));
    std::memmove(gates_ + num_fired_, gates_ + piece->begin, fired * sizeof(float));
    num_fired_ += piece->fired;
  }
}

}  // namespace hearth
