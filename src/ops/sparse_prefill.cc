#include "ops/sparse_prefill.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <type_traits>

#include "base/error.h"
#include "ops/scratch_places.h"
#include "ops/sparse_prefill_job.h"
#include "tensor/row_groups.h"
#include "tensor/weight_tiles.h"

namespace hearth {
namespace {

using kernels::GroupQ8;
using kernels::KernelTable;
using kernels::kRowsOfBatch;
using kernels::kRowsOfSums;
using kernels::RowList;

constexpr int64_t kTilesOfBatch = kRowsOfBatch / TileLayout::kRows;
static_assert(kRowsOfBatch == 64, "a batch's neurons are the bits of a word");
constexpr int64_t kBatchesOfSums = kRowsOfSums / kRowsOfBatch;

int64_t BatchesOf(int64_t neurons) { return (neurons + kRowsOfBatch - 1) / kRowsOfBatch; }

// The largest tile of any type.
size_t MaxTileBytes(int64_t hidden) { return TileLayout(DType::kQ8_0, hidden).tile_bytes(); }

}  // namespace

// Who fires of a batch of neurons, an entry per token and neuron, token after token.
struct SparsePrefill::Entries {
  int32_t* begins;  // [tokens + 1]: the first entry of a token
  int32_t* places;  // the neuron's number in the batch
  float* gate;      // then what reaches down
};

// What one thread has for the neurons that are added to sums together.
struct SparsePrefill::Workspace {
  Entries entries[kBatchesOfSums];
  // For one batch at a time.
  std::byte* tiles;  // of their gates
  float* gates;      // [tokens][kRowsOfBatch]
  float* up;
  float* lanes;  // [entries][kLanesOfEntry]
  // Where rows are floats, one neuron's: the tokens that fire it, and their products.
  int32_t* tokens;
  float* products;

  // Without memory only the size counts.
  static size_t Place(const SparsePrefillShape& shape, std::byte* memory, Workspace* work) {
    ScratchPlaces scratch;
    const int64_t tokens = shape.max_tokens;
    const auto take = [&](auto*& place, int64_t count) {
      using T = std::remove_reference_t<decltype(*place)>;
      const size_t at = scratch.Take(count, sizeof(T));
      if (memory != nullptr) place = reinterpret_cast<T*>(memory + at);
    };
    Workspace placed{};
    take(placed.tiles, kTilesOfBatch * static_cast<int64_t>(MaxTileBytes(shape.max_hidden)));
    take(placed.gates, tokens * kRowsOfBatch);
    for (Entries& entries : placed.entries) {
      take(entries.begins, tokens + 1);
      take(entries.places, tokens * kRowsOfBatch);
      take(entries.gate, tokens * kRowsOfBatch);
    }
    take(placed.up, tokens * kRowsOfBatch);
    take(placed.lanes, tokens * kRowsOfBatch * kernels::kLanesOfEntry);
    take(placed.tokens, tokens);
    take(placed.products, tokens);
    if (work != nullptr) *work = placed;
    return scratch.used();
  }
};

struct SparsePrefill::Places {
  size_t x, listed, sums, all, fired, factors, places, begins, workspaces, end;

  explicit Places(const SparsePrefillShape& shape) {
    ScratchPlaces scratch;
    const int64_t tokens = shape.max_tokens, groups = RowGroupCount(shape.max_hidden);
    x = scratch.Take(tokens * groups, sizeof(GroupQ8));
    listed = scratch.Take(tokens * BatchesOf(shape.max_neurons), sizeof(uint64_t));
    sums = scratch.Take(groups * tokens * kRowGroupWeights, sizeof(float));
    all = scratch.Take(shape.max_neurons, sizeof(int32_t));
    const int64_t batches = BatchesOf(std::min(shape.block_neurons, shape.max_neurons));
    fired = scratch.Take(tokens * batches, sizeof(uint64_t));
    factors = scratch.Take(tokens * batches * kRowsOfBatch, sizeof(float));
    places = scratch.Take(tokens * batches * kRowsOfBatch, sizeof(int32_t));
    begins = scratch.Take((tokens + 1) * batches, sizeof(int32_t));
    workspaces = scratch.Take(shape.threads, Workspace::Place(shape, nullptr, nullptr));
    end = scratch.used();
  }
};

uint64_t SparsePrefill::ChargedBytes(const SparsePrefillShape& shape) {
  return Buffer::ChargedBytes(Places(shape).end);
}

SparsePrefill::SparsePrefill(Budget& budget, const SparsePrefillShape& shape)
    : shape_(shape),
      memory_(budget, "activations", Places(shape).end),
      words_(BatchesOf(shape.max_neurons)) {
  if (shape.block_neurons < kRowsOfSums || shape.block_neurons % kRowsOfSums != 0 ||
      shape.block_neurons * shape.max_tokens >= int64_t{1} << 31) {
    throw Error(ErrorCode::kInternal, "SparsePrefill", "blocks of no use");
  }
  const Places at(shape);
  std::byte* base = memory_.data();
  x_ = reinterpret_cast<GroupQ8*>(base + at.x);
  listed_ = reinterpret_cast<uint64_t*>(base + at.listed);
  sums_ = reinterpret_cast<float*>(base + at.sums);
  all_ = reinterpret_cast<int32_t*>(base + at.all);
  fired_ = reinterpret_cast<uint64_t*>(base + at.fired);
  factors_ = reinterpret_cast<float*>(base + at.factors);
  places_ = reinterpret_cast<int32_t*>(base + at.places);
  begins_ = reinterpret_cast<int32_t*>(base + at.begins);
  workspaces_ = base + at.workspaces;
  std::iota(all_, all_ + shape.max_neurons, 0);
}

SparsePrefill::Workspace SparsePrefill::WorkspaceOf(int worker) {
  Workspace work;
  const size_t bytes = Workspace::Place(shape_, nullptr, nullptr);
  Workspace::Place(shape_, workspaces_ + bytes * static_cast<size_t>(worker), &work);
  return work;
}

void SparsePrefill::SetLists(Compute& compute, int64_t first_token,
                             std::span<const std::span<const int32_t>> lists) {
  if (first_token + std::ssize(lists) > shape_.max_tokens) {
    throw Error(ErrorCode::kInternal, "SparsePrefill", "lists of too many tokens");
  }
  for (const std::span<const int32_t> list : lists) {
    if (!list.empty() && (list.front() < 0 || list.back() >= shape_.max_neurons)) {
      throw Error(ErrorCode::kInternal, "SparsePrefill", "a list of other neurons");
    }
  }
  compute.team().ParallelFor(std::ssize(lists), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      uint64_t* const bits = listed_ + (first_token + i) * words_;
      std::fill_n(bits, words_, 0);
      for (const int32_t neuron : lists[static_cast<size_t>(i)]) {
        bits[neuron / kRowsOfBatch] |= uint64_t{1} << (neuron % kRowsOfBatch);
      }
    }
  });
}

void SparsePrefill::QuantizeGroups(Compute& compute, FloatView x) {
  const int64_t groups = RowGroupCount(x.cols);
  compute.team().ParallelFor(x.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      compute.kernels().quantize_q8_groups(x.row(t), x.cols, x_ + t * groups);
    }
  });
}

// Gates of a batch, neurons [first, first + count), for all tokens.
void SparsePrefill::MultiplyGates(const Job& job, const Workspace& work, int64_t first,
                                  int64_t count) const {
  const RowsView& gate = job.ffn.gate;
  const auto type = static_cast<size_t>(gate.dtype);
  if (!HasRowGroups(gate.dtype)) {
    job.table.matmul[type]({gate.data + gate.stride * static_cast<size_t>(first), gate.stride,
                            job.hidden, job.x.data, job.x.stride, job.tokens, work.gates,
                            kRowsOfBatch, 0, count});
    AddBiases(job, work, first, count);
    return;
  }
  const size_t tile_bytes = TileLayout(gate.dtype, job.hidden).tile_bytes();
  const int64_t tiles = TileLayout::TilesFor(count);
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t row = first + t * TileLayout::kRows;
    const int64_t rows = std::min(TileLayout::kRows, first + count - row);
    job.table.rows_to_tile[type](
        {job.Rows(gate, row, rows), job.hidden, work.tiles + static_cast<size_t>(t) * tile_bytes});
  }
  job.table.matmul_tiles[type]({work.tiles, tile_bytes, job.hidden / 32, job.panels, job.tokens,
                                work.gates, kRowsOfBatch, count, 0, tiles, job.tiles});
  AddBiases(job, work, first, count);
}

void SparsePrefill::AddBiases(const Job& job, const Workspace& work, int64_t first,
                              int64_t count) const {
  const RowsView& gate = job.ffn.gate;
  if (gate.biases == nullptr) return;
  float biases[kRowsOfBatch];
  for (int64_t n = 0; n < count; ++n) biases[n] = gate.Bias(job.row_of[first + n]);
  for (int64_t t = 0; t < job.tokens; ++t) {
    float* const gates = work.gates + t * kRowsOfBatch;
    for (int64_t n = 0; n < count; ++n) gates[n] += biases[n];
  }
}

// Of a batch of the block.
uint64_t* SparsePrefill::FiredOf(const Job& job, int64_t first) const {
  return fired_ + (first - job.begin) / kRowsOfBatch * job.tokens;
}

// Lists who fires of neurons [first, first + count), whose gates are at hand; returns how many
// entries that makes.
int64_t SparsePrefill::ListEntries(const Job& job, const float* gates_of, int64_t first,
                                   int64_t count, const Entries& list) {
  const SilentGates silent = job.silent != nullptr ? *job.silent : kNoSilentGates;
  uint64_t* const fired_of = FiredOf(job, first);
  const uint64_t* const listed = listed_ + (job.range.first + first) / kRowsOfBatch;
  int64_t entries = 0;
  for (int64_t t = 0; t < job.tokens; ++t) {
    const uint64_t* const allowed = job.only_listed ? listed + t * words_ : nullptr;
    list.begins[t] = static_cast<int32_t>(entries);
    entries += job.table.pack_fired({all_, gates_of + t * kRowsOfBatch, count, silent.below,
                                     silent.from, silent.to, allowed, fired_of + t,
                                     list.places + entries, list.gate + entries});
  }
  list.begins[job.tokens] = static_cast<int32_t>(entries);
  return entries;
}

// Up of a batch's entries.
void SparsePrefill::MultiplyUp(const Job& job, const Workspace& work, int64_t first,
                               const Entries& list) const {
  const RowsView& up = job.ffn.up;
  const auto type = static_cast<size_t>(up.dtype);
  const RowList rows = job.Rows(up, first, kRowsOfBatch);
  if (!HasRowGroups(up.dtype)) {
    MultiplyUpOfFloats(job, work, FiredOf(job, first), rows, list);
    return;
  }
  // The gates of the batch behind are what is read next.
  const bool fetches = job.ffn.gate.dtype == up.dtype;
  job.table.rows_times_tokens[type](
      {rows, job.hidden, x_, job.tokens, list.begins, list.places, work.lanes, work.up,
       fetches ? job.Rows(job.ffn.gate, first + kRowsOfBatch, kRowsOfBatch) : RowList{}});
}

// The same neuron by neuron.
void SparsePrefill::MultiplyUpOfFloats(const Job& job, const Workspace& work,
                                       const uint64_t* fired_of, const RowList& rows,
                                       const Entries& list) const {
  const auto multiply = job.table.float_row_times_tokens[static_cast<size_t>(job.ffn.up.dtype)];
  for (int64_t n = 0; n < rows.count; ++n) {
    int64_t fired = 0;
    for (int64_t t = 0; t < job.tokens; ++t) {
      work.tokens[fired] = static_cast<int32_t>(t);
      fired += static_cast<int64_t>(fired_of[t] >> n & 1);
    }
    multiply({rows.base + rows.stride * static_cast<size_t>(rows.rows[n]), job.hidden, job.x.data,
              job.x.stride, work.tokens, fired, work.products});
    const uint64_t before = (uint64_t{1} << n) - 1;
    for (int64_t i = 0; i < fired; ++i) {
      const int32_t t = work.tokens[i];
      work.up[list.begins[t] + std::popcount(fired_of[t] & before)] = work.products[i];
    }
  }
}

// A batch of neurons [first, first + count): gates of all tokens, then up and the activation of
// those that fire.
void SparsePrefill::ActivateBatch(Job& job, const Workspace& work, int64_t first, int64_t count,
                                  const Entries& list) {
  const FfnNeurons& ffn = job.ffn;
  if (job.range.arrive != nullptr) (*job.range.arrive)(first, count);
  MultiplyGates(job, work, first, count);
  const int64_t entries = ListEntries(job, work.gates, first, count, list);
  if (ffn.is_gated()) {
    MultiplyUp(job, work, first, list);
  } else {
    std::fill_n(work.up, entries, 1.0f);
  }
  job.table.ffn_activation[static_cast<size_t>(ffn.activation)](list.gate, work.up, entries,
                                                                ffn.threshold, list.gate);
  job.fired.fetch_add(entries, std::memory_order_relaxed);
}

// Neurons [first, end) that are added to sums together: the entries of theirs that reach down.
void SparsePrefill::Activate(Job& job, const Workspace& work, int64_t first, int64_t end) {
  int64_t batches = 0;
  for (int64_t n = first; n < end; n += kRowsOfBatch, ++batches) {
    ActivateBatch(job, work, n, std::min(kRowsOfBatch, end - n), work.entries[batches]);
  }
  const int64_t start = (first - job.begin) * job.tokens;
  int32_t* begins = begins_ + (first - job.begin) / job.rows_of_sums * (job.tokens + 1);
  int64_t kept = start;
  for (int64_t t = 0; t < job.tokens; ++t) {
    begins[t] = static_cast<int32_t>(kept);
    for (int64_t b = 0; b < batches; ++b) {
      const Entries& list = work.entries[b];
      for (int32_t e = list.begins[t]; e < list.begins[t + 1]; ++e) {
        places_[kept] = list.places[e] + static_cast<int32_t>(b * kRowsOfBatch);
        factors_[kept] = list.gate[e];
        kept += job.silent != nullptr && list.gate[e] == 0.0f ? 0 : 1;
      }
    }
  }
  begins[job.tokens] = static_cast<int32_t>(kept);
  job.active.fetch_add(kept - start, std::memory_order_relaxed);
}

void SparsePrefill::RunBlock(Compute& compute, Job& job, FloatView out) {
  compute.team().ParallelFor(
      job.end - job.begin, job.rows_of_sums, [&](int64_t begin, int64_t end, int worker) {
        const Workspace work = WorkspaceOf(worker);
        for (int64_t n = job.begin + begin; n < job.begin + end; n += job.rows_of_sums) {
          Activate(job, work, n, std::min(n + job.rows_of_sums, job.begin + end));
        }
      });
  AddDown(compute, job, out);
}

SparseFfnCounts SparsePrefill::RunRange(Compute& compute, const FfnNeurons& ffn, MatMulInput& input,
                                        const Range& range, const Choice& choice, FloatView out) {
  const SilentGates silent = SilentGatesOf(ffn.activation, ffn.threshold);
  CheckNeurons(ffn, shape_.max_hidden, shape_.max_neurons, true);
  Job job{.table = compute.kernels(),
          .ffn = ffn,
          .row_of = ffn.slots != nullptr ? ffn.slots : all_,
          .x = input.x(),
          .panels = HasRowGroups(ffn.gate.dtype) ? input.Quantized(compute) : nullptr,
          .tiles = compute.TilesFor(input.x().rows),
          .tokens = input.x().rows,
          .hidden = ffn.gate.cols,
          .neurons = ffn.gate.rows,
          .rows_of_sums = HasRowGroups(ffn.down.dtype) ? kRowsOfSums : kRowsOfBatch,
          .range = range,
          .only_listed = choice.only_listed,
          .silent = choice.skip_silent ? &silent : nullptr};
  if (job.tokens > shape_.max_tokens || job.hidden != job.x.cols ||
      range.first + job.neurons > shape_.max_neurons ||
      (choice.skip_silent && !CanSkipNeurons(ffn.activation))) {
    throw Error(ErrorCode::kInternal, "SparsePrefill", "a batch that does not fit the scratch");
  }
  if (range.is_first && ffn.is_gated() && HasRowGroups(ffn.up.dtype)) {
    QuantizeGroups(compute, job.x);
  }
  num_tokens_ = job.tokens;
  rows_of_sums_ = job.rows_of_sums;
  for (; job.begin < job.neurons; job.begin = job.end) {
    job.end = std::min(job.begin + shape_.block_neurons, job.neurons);
    RunBlock(compute, job, out);
    first_neuron_ = range.first + job.begin;
    num_neurons_ = job.end - job.begin;
    if (range.after_block) range.after_block();
  }
  return {.gate = job.tokens * job.neurons, .up = job.fired, .active = job.active};
}

namespace {

// Appends the bits of words[0], words[stride], ... from number `first` on.
void AppendBits(const uint64_t* words, int64_t count, int64_t stride, int64_t first,
                std::vector<int32_t>& numbers) {
  for (int64_t w = 0; w < count; ++w) {
    for (uint64_t bits = words[w * stride]; bits != 0; bits &= bits - 1) {
      numbers.push_back(static_cast<int32_t>(first + w * kRowsOfBatch) + std::countr_zero(bits));
    }
  }
}

}  // namespace

void SparsePrefill::ListListed(int64_t token, std::vector<int32_t>& neurons) const {
  AppendBits(listed_ + token * words_, words_, 1, 0, neurons);
}

void SparsePrefill::ListFired(int64_t token, std::vector<int32_t>& neurons) const {
  AppendBits(fired_ + token, BatchesOf(num_neurons_), num_tokens_, first_neuron_, neurons);
}

void SparsePrefill::ListActive(int64_t token, std::vector<int32_t>& neurons,
                               std::vector<float>& factors) const {
  const int32_t* begins = begins_ + token;
  for (int64_t n = 0; n < num_neurons_; n += rows_of_sums_, begins += num_tokens_ + 1) {
    for (int32_t entry = begins[0]; entry < begins[1]; ++entry) {
      if (factors_[entry] == 0.0f) continue;
      neurons.push_back(static_cast<int32_t>(first_neuron_ + n) + places_[entry]);
      factors.push_back(factors_[entry]);
    }
  }
}

}  // namespace hearth
