#include "ops/sparse_ffn.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "ops/neuron_cluster.h"
#include "ops/scratch_places.h"
#include "tensor/row_groups.h"

namespace hearth {
namespace {

using kernels::GroupQ8;
using kernels::KernelTable;
using kernels::RowList;

// Neurons that are handed out together: pieces of a section are multiples of it.
constexpr int64_t kNeuronGrain = 16;

RowList ListOf(const RowsView& rows, const int32_t* list, int64_t count) {
  return {rows.data, rows.stride, list, count};
}

}  // namespace

void CheckNeurons(const FfnNeurons& ffn, int64_t max_hidden, int64_t max_neurons,
                  bool takes_slots) {
  if (ffn.slots != nullptr && !(takes_slots && HasRowGroups(ffn.gate.dtype))) {
    throw Error(ErrorCode::kInternal, "FfnNeurons", "rows that lie anywhere");
  }
  for (const RowsView* view : {&ffn.gate, &ffn.up, &ffn.down}) {
    if (view == &ffn.up && !ffn.is_gated()) continue;
    if (view->rows != ffn.gate.rows || view->cols != ffn.gate.cols || view->cols % 32 != 0 ||
        view->cols > max_hidden || view->rows > max_neurons || !IsRowType(view->dtype)) {
      throw Error(ErrorCode::kInternal, "FfnNeurons", "rows of neurons that do not fit");
    }
  }
}

SparseFfnCounts& SparseFfnCounts::operator+=(const SparseFfnCounts& other) {
  gate += other.gate;
  up += other.up;
  active += other.active;
  return *this;
}

SparseFfnCounts& SparseFfnCounts::operator-=(const SparseFfnCounts& other) {
  gate -= other.gate;
  up -= other.up;
  active -= other.active;
  return *this;
}

struct SparseFfn::Places {
  size_t x, gate, up, fired, active, factors, all, end;

  Places(int64_t max_hidden, int64_t max_neurons) {
    ScratchPlaces scratch;
    x = scratch.Take(RowGroupCount(max_hidden), sizeof(GroupQ8));
    gate = scratch.Take(max_neurons, sizeof(float));
    up = scratch.Take(max_neurons, sizeof(float));
    fired = scratch.Take(max_neurons, sizeof(int32_t));
    active = scratch.Take(max_neurons, sizeof(int32_t));
    factors = scratch.Take(max_neurons, sizeof(float));
    all = scratch.Take(max_neurons, sizeof(int32_t));
    end = scratch.used();
  }
};

uint64_t SparseFfn::ChargedBytes(int64_t max_hidden, int64_t max_neurons) {
  return Buffer::ChargedBytes(Places(max_hidden, max_neurons).end);
}

SparseFfn::SparseFfn(Budget& budget, int64_t max_hidden, int64_t max_neurons)
    : memory_(budget, "activations", Places(max_hidden, max_neurons).end),
      max_hidden_(max_hidden),
      max_neurons_(max_neurons),
      pieces_(static_cast<size_t>((max_neurons + kNeuronGrain - 1) / kNeuronGrain)) {
  const Places at(max_hidden, max_neurons);
  std::byte* base = memory_.data();
  x_ = reinterpret_cast<GroupQ8*>(base + at.x);
  gate_ = reinterpret_cast<float*>(base + at.gate);
  up_ = reinterpret_cast<float*>(base + at.up);
  fired_ = reinterpret_cast<int32_t*>(base + at.fired);
  active_ = reinterpret_cast<int32_t*>(base + at.active);
  factors_ = reinterpret_cast<float*>(base + at.factors);
  all_ = reinterpret_cast<int32_t*>(base + at.all);
  std::iota(all_, all_ + max_neurons, 0);
}

// Candidates [begin, end) of a list, and their places: what is left is packed to the front of them.
NeuronCluster SparseFfn::Cluster(const int32_t* listed, int64_t begin, int64_t end) const {
  return {.rows = listed + begin,
          .count = end - begin,
          .gate = gate_ + begin,
          .up = up_ + begin,
          .fired = fired_ + begin,
          .active = active_ + begin,
          .factors = factors_ + begin};
}

// Packs what the pieces left together, in ascending order.
void SparseFfn::JoinPieces() {
  const auto last = pieces_.begin() + static_cast<ptrdiff_t>(num_pieces_.load());
  std::sort(pieces_.begin(), last,
            [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  num_active_ = 0;
  for (auto piece = pieces_.begin(); piece != last; ++piece) {
    const auto count = static_cast<size_t>(piece->active);
    std::memmove(active_ + num_active_, active_ + piece->begin, count * sizeof(int32_t));
    std::memmove(factors_ + num_active_, factors_ + piece->begin, count * sizeof(float));
    num_active_ += piece->active;
  }
}

void SparseFfn::ListFired(std::vector<int32_t>& neurons) const {
  VisitFired([&](std::span<const int32_t> fired) {
    neurons.insert(neurons.end(), fired.begin(), fired.end());
  });
}

// Every thread adds all rows to columns of its own.
void SparseFfn::AddDown(Compute& compute, const FfnNeurons& ffn, float* out, bool adds) const {
  const int64_t hidden = ffn.down.cols;
  if (!adds) std::memset(out, 0, static_cast<size_t>(hidden) * sizeof(float));
  const auto add = compute.kernels().row_scaled_add[static_cast<size_t>(ffn.down.dtype)];
  const int64_t groups = RowGroupCount(hidden);
  // As few pieces as there are threads: a row is read in runs as long as can be.
  const int64_t grain = (groups + compute.threads() - 1) / compute.threads();
  compute.team().ParallelFor(groups, grain, [&](int64_t begin, int64_t end, int) {
    add({ListOf(ffn.down, active_, num_active_), factors_, hidden, begin, end, out});
  });
}

SparseFfnCounts SparseFfn::Activate(Compute& compute, const FfnNeurons& ffn, const float* x,
                                    std::optional<std::span<const int32_t>> listed,
                                    bool skip_silent) {
  CheckNeurons(ffn, max_hidden_, max_neurons_, !listed);
  const KernelTable& table = compute.kernels();
  const int64_t candidates = listed ? static_cast<int64_t>(listed->size()) : ffn.gate.rows;
  const int32_t* every = ffn.slots != nullptr ? ffn.slots : all_;
  const int32_t* list = listed ? listed->data() : every;
  const SilentGates gates = SilentGatesOf(ffn.activation, ffn.threshold);
  const SilentGates* silent = skip_silent && CanSkipNeurons(ffn.activation) ? &gates : nullptr;
  const NeuronInput input = PrepareInput(table, ffn, x, x_);
  num_pieces_ = 0;
  compute.team().ParallelFor(candidates, kNeuronGrain, [&](int64_t begin, int64_t end, int) {
    const ClusterCounts done = ComputeCluster(table, ffn, input, silent, Cluster(list, begin, end));
    const size_t piece = num_pieces_.fetch_add(1, std::memory_order_relaxed);
    pieces_[piece] = {begin, done.fired, done.active};
  });
  SparseFfnCounts counts{.gate = candidates};
  for (size_t i = 0; i < num_pieces_; ++i) counts.up += pieces_[i].fired;
  JoinPieces();
  counts.active = num_active_;
  return counts;
}

}  // namespace hearth
