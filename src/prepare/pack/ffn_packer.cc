#include "prepare/pack/ffn_packer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "kernels/dequantize.h"
#include "prepare/pack/ordered_work.h"

namespace hearth {
namespace {

// Rows of down that are turned at a time: a block of every type that bundles store.
constexpr int64_t kPanelRows = 32;
// Columns of them: a multiple of every block size; with the panel's rows 32 KiB of floats, in the
// first-level cache. The stride is odd in cache lines, so that columns do not share a set.
constexpr int64_t kTileColumns = 256;
constexpr int64_t kTileStride = kTileColumns + 16;
// Bundles are made and written in runs of about this size (prepare/synth/synth.cc measured it).
constexpr uint64_t kRunBytes = uint64_t{1} << 20;
// Fewer bundles than this are not worth another pass over down.
constexpr int64_t kMinRange = 1024;
// A sixteenth of the panels tells the error of down well enough.
constexpr size_t kErrorEvery = 16;
// What FileWriter::KeepOutOfPageCache leaves there, and some reads.
constexpr uint64_t kPageCacheBytes = uint64_t{24} << 20;
// As the engine has it: the program's resident size differs a little from run to run, that of a
// sanitizer's build by some percent, and a budget that is named as sufficient must still be in the
// next run.
uint64_t ProgramDriftBytes(uint64_t program_bytes) {
  return std::max(uint64_t{2} << 20, program_bytes / 32);
}

int64_t BundlesPerRun(const PackPlan& plan) {
  return std::max<int64_t>(1, static_cast<int64_t>(kRunBytes / plan.layout.stride));
}

uint64_t RowBytesOf(const GgufTensor& tensor) {
  return RowBytes(tensor.dtype, static_cast<size_t>(tensor.ne[0]));
}

// Scratch of a thread: rows of down, or a run of bundles and the gate and up rows they are made of.
uint64_t ThreadBytes(const PackPlan& plan) {
  const auto run = static_cast<uint64_t>(BundlesPerRun(plan));
  uint64_t bytes = 0;
  for (const PackedLayer& layer : plan.layers) {
    const uint64_t up = layer.up.tensor != nullptr ? RowBytesOf(*layer.up.tensor) : 0;
    const uint64_t rows = RowBytesOf(*layer.gate.tensor) + up;
    bytes = std::max(bytes, run * (plan.layout.stride + rows));
    bytes = std::max(bytes, uint64_t{kPanelRows} * RowBytesOf(*layer.down));
  }
  return bytes;
}

uint64_t DownRowBytes(const PackPlan& plan) {
  return RowBytes(plan.quant, static_cast<size_t>(plan.hidden));
}

// Scales are halves. Larger weights are cut off where they are converted, which no model survives.
constexpr float kMostWeight = 65504;

int64_t MostNeurons(const PackPlan& plan) {
  int64_t most = 0;
  for (const PackedLayer& layer : plan.layers) most = std::max(most, layer.neurons);
  return most;
}

}  // namespace

uint64_t PackMemory::CachedBytes(const PackPlan& plan) const {
  if (!drop_page_cache) return 0;
  uint64_t ffn = 0;
  for (const PackedLayer& layer : plan.layers) {
    uint64_t bytes = 0;
    for (const GgufTensor* matrix : layer.matrices()) bytes += layer.ffn_bytes(*matrix);
    ffn = std::max(ffn, bytes);
  }
  return kPageCacheBytes + (fetch_whole_ffns ? ffn : 0);
}

PackMemory PackMemory::Plan(const PackPlan& plan, const Terms& terms) {
  const uint64_t row_bytes = DownRowBytes(plan);
  const auto most = static_cast<uint64_t>(MostNeurons(plan));
  PackMemory memory;
  memory.thread_bytes = std::max(ThreadBytes(plan), terms.thread_bytes);
  memory.drop_page_cache = terms.limit_counts_page_cache;
  const auto needed = [&] {
    return terms.used_bytes + memory.CachedBytes(plan) +
           Buffer::ChargedBytes(memory.thread_bytes * static_cast<uint64_t>(terms.threads)) +
           Buffer::ChargedBytes(memory.down_bytes);
  };
  memory.down_bytes = most * row_bytes;
  if (needed() <= terms.limit_bytes) return memory;
  memory.fetch_whole_ffns = false;
  if (needed() <= terms.limit_bytes) return memory;
  const uint64_t least = std::min(most, static_cast<uint64_t>(kMinRange)) * row_bytes;
  memory.down_bytes = least;
  if (needed() > terms.limit_bytes) {
    const std::string what = fmt::format(
        "{} is too little to pack this model with {} threads: the smallest that can is {}M",
        FormatSize(terms.limit_bytes), terms.threads,
        ((needed() + ProgramDriftBytes(terms.used_bytes)) >> 20) + 1);
    if (terms.limit_counts_page_cache) throw Error(ErrorCode::kOutOfBudget, Field{"memory"}, what);
    throw Error(ErrorCode::kOutOfBudget, "memory", what);
  }
  // Buffers are charged by the page: taking what is left may be a row too much.
  memory.down_bytes += (terms.limit_bytes - needed()) / row_bytes * row_bytes;
  while (needed() > terms.limit_bytes && memory.down_bytes > least) memory.down_bytes -= row_bytes;
  return memory;
}

struct FfnPacker::Ffn {
  const PackedLayer& layer;
  int64_t expert;

  // Bytes of the tensor before this FFN's.
  uint64_t Begin(const GgufTensor& tensor) const {
    return static_cast<uint64_t>(expert) * layer.ffn_bytes(tensor);
  }
  const std::vector<int32_t>& order() const { return layer.order[static_cast<size_t>(expert)]; }
};

struct FfnPacker::Range {
  int64_t begin;
  int64_t end;

  int64_t count() const { return end - begin; }
};

FfnPacker::FfnPacker(const GgufFile& source, const PackPlan& plan, const PackMemory& memory,
                     WorkerTeam& team, Budget& budget)
    : source_(source),
      plan_(plan),
      memory_(memory),
      team_(team),
      encoders_(static_cast<size_t>(team.size()), BundleEncoder(plan.layout, plan.hidden)),
      scratch_(budget, "work", memory.thread_bytes * static_cast<uint64_t>(team.size())),
      down_(budget, "down of an FFN", memory.down_bytes),
      errors_(static_cast<size_t>(plan.hidden / kPanelRows)),
      norms_(errors_.size()) {}

void FfnPacker::Pack(const WriteFn& write, const std::function<void()>& tick) {
  std::vector<Ffn> ffns;
  for (const PackedLayer& layer : plan_.layers) {
    for (int64_t e = 0; e < layer.experts; ++e) ffns.push_back({layer, e});
  }
  DropAll();
  const auto held = static_cast<int64_t>(memory_.down_bytes / DownRowBytes(plan_));
  for (size_t i = 0; i < ffns.size(); ++i) {
    const Ffn& ffn = ffns[i];
    const PackedLayer& layer = ffn.layer;
    slot_of_.resize(static_cast<size_t>(layer.neurons));
    for (size_t slot = 0; slot < slot_of_.size(); ++slot) {
      slot_of_[static_cast<size_t>(ffn.order()[slot])] = static_cast<int32_t>(slot);
    }
    for (const GgufTensor* tensor : layer.matrices()) Fetch(*tensor, ffn);
    ReadBiases(ffn);
    for (int64_t begin = 0; begin < layer.neurons; begin += held) {
      const Range range{begin, std::min(begin + held, layer.neurons)};
      TurnRange(ffn, range, tick);
      // What DropAll would take away is not worth fetching.
      if (!memory_.drop_page_cache && range.end == layer.neurons && i + 1 < ffns.size()) {
        Fetch(*ffns[i + 1].layer.down, ffns[i + 1]);
      }
      WriteRange(ffn, range, write, tick);
    }
    DropAll();
  }
}

std::span<std::byte> FfnPacker::ScratchOf(int worker) {
  return {scratch_.data() + static_cast<size_t>(worker) * memory_.thread_bytes,
          static_cast<size_t>(memory_.thread_bytes)};
}

void FfnPacker::TurnRange(const Ffn& ffn, const Range& range, const std::function<void()>& tick) {
  RunPieces(team_, errors_.size(), [&](int worker, size_t panel) {
    TurnDown(ffn, range, panel, ScratchOf(worker));
    if (worker == 0) tick();
  });
}

void FfnPacker::WriteRange(const Ffn& ffn, const Range& range, const WriteFn& write,
                           const std::function<void()>& tick) {
  const int64_t per_run = BundlesPerRun(plan_);
  const auto runs = static_cast<size_t>((range.count() + per_run - 1) / per_run);
  const auto run_of = [&](size_t run) {
    const int64_t begin = range.begin + static_cast<int64_t>(run) * per_run;
    return Range{begin, std::min(begin + per_run, range.end)};
  };
  RunPiecesInOrder(
      team_, runs,
      [&](int worker, size_t run) {
        MakeBundles(ffn, run_of(run), range, encoders_[static_cast<size_t>(worker)],
                    ScratchOf(worker));
      },
      [&](int worker, size_t run) {
        const auto bytes = static_cast<uint64_t>(run_of(run).count()) * plan_.layout.stride;
        write(worker, ScratchOf(worker).first(bytes));
        if (worker == 0) tick();
      });
}

// Rows [32 * panel, 32 * panel + 32) of down become block `panel` of every neuron's row.
void FfnPacker::TurnDown(const Ffn& ffn, const Range& range, size_t panel,
                         std::span<std::byte> scratch) {
  const GgufTensor& down = *ffn.layer.down;
  const uint64_t bytes = uint64_t{kPanelRows} * RowBytesOf(down);
  const std::span<std::byte> rows = scratch.first(bytes);
  const uint64_t begin = ffn.Begin(down) + panel * bytes;
  source_.ReadTensor(down, begin, rows);
  if (memory_.drop_page_cache && !memory_.fetch_whole_ffns) {
    source_.DropCached(down, begin, bytes);
  }
  for (int64_t c = 0; c < ffn.layer.neurons; c += kTileColumns)
    TurnTile(ffn, range, panel, rows, c);
}

void FfnPacker::TurnTile(const Ffn& ffn, const Range& range, size_t panel,
                         std::span<const std::byte> rows, int64_t first_column) {
  const GgufTensor& down = *ffn.layer.down;
  const int64_t columns = std::min(kTileColumns, ffn.layer.neurons - first_column);
  const uint64_t source_row = RowBytesOf(down);
  const uint64_t skipped = RowBytes(down.dtype, static_cast<size_t>(first_column));
  float tile[kPanelRows * kTileStride];
  for (int64_t r = 0; r < kPanelRows; ++r) {
    kernels::Dequantize(down.dtype, rows.data() + static_cast<uint64_t>(r) * source_row + skipped,
                        columns, tile + r * kTileStride);
  }
  const uint64_t block_bytes = RowBytes(plan_.quant, kPanelRows);
  const uint64_t row_bytes = DownRowBytes(plan_);
  const bool is_measured = panel % kErrorEvery == 0;
  for (int64_t c = 0; c < columns; ++c) {
    const int64_t slot = slot_of_[static_cast<size_t>(first_column + c)];
    if (slot < range.begin || slot >= range.end) continue;
    float block[kPanelRows];
    for (int64_t r = 0; r < kPanelRows; ++r) block[r] = tile[r * kTileStride + c];
    CheckWeights(down, block);
    std::byte* const out =
        down_.data() + static_cast<uint64_t>(slot - range.begin) * row_bytes + panel * block_bytes;
    kernels::Quantize(plan_.quant, block, kPanelRows, out);
    if (!is_measured) continue;
    float stored[kPanelRows];
    kernels::Dequantize(plan_.quant, out, kPanelRows, stored);
    for (int64_t r = 0; r < kPanelRows; ++r) {
      const double error = static_cast<double>(stored[r]) - block[r];
      errors_[panel] += error * error;
      norms_[panel] += static_cast<double>(block[r]) * block[r];
    }
  }
}

// Bundles at the front of the scratch, after them the rows they are made of.
void FfnPacker::MakeBundles(const Ffn& ffn, const Range& bundles, const Range& held,
                            BundleEncoder& encoder, std::span<std::byte> scratch) {
  const GgufTensor& gate = *ffn.layer.gate.tensor;
  const GgufTensor* const up = ffn.layer.up.tensor;
  const uint64_t up_row = up != nullptr ? RowBytesOf(*up) : 0;
  const uint64_t stride = plan_.layout.stride;
  const auto count = static_cast<uint64_t>(bundles.count());
  const std::span<std::byte> out = scratch.first(count * stride);
  const std::span<std::byte> gates = scratch.subspan(count * stride, count * RowBytesOf(gate));
  const std::span<std::byte> ups =
      scratch.subspan(count * (stride + RowBytesOf(gate)), count * up_row);
  ReadRows(ffn, ffn.layer.gate, bundles, gates);
  if (up != nullptr) ReadRows(ffn, ffn.layer.up, bundles, ups);
  const uint64_t down_row = DownRowBytes(plan_);
  const std::byte* const downs =
      down_.data() + static_cast<uint64_t>(bundles.begin - held.begin) * down_row;
  for (uint64_t i = 0; i < count; ++i) {
    NeuronRows neuron{.gate = {gate.dtype, gates.data() + i * RowBytesOf(gate)},
                      .down = {plan_.quant, downs + i * down_row}};
    CheckRow(gate, neuron.gate.data);
    if (up != nullptr) {
      neuron.up = {up->dtype, ups.data() + i * up_row};
      CheckRow(*up, neuron.up.data);
    }
    if (!biases_.empty()) {
      const auto bundle = static_cast<size_t>(bundles.begin) + i;
      neuron.bias = biases_[static_cast<size_t>(ffn.order()[bundle])];
    }
    encoder.Encode(neuron, out.subspan(i * stride, stride));
  }
}

void FfnPacker::ReadBiases(const Ffn& ffn) {
  const GgufTensor* const tensor = ffn.layer.bias;
  if (tensor == nullptr) return;
  std::vector<std::byte> stored(ffn.layer.ffn_bytes(*tensor));
  source_.ReadTensor(*tensor, ffn.Begin(*tensor), stored);
  biases_.resize(static_cast<size_t>(ffn.layer.neurons));
  kernels::Dequantize(tensor->dtype, stored.data(), ffn.layer.neurons, biases_.data());
  for (const float bias : biases_) {
    if (std::isfinite(bias)) continue;
    throw Error(ErrorCode::kCorrupt, source_.path(),
                fmt::format("{} holds biases that are no numbers", Printable(tensor->name)));
  }
}

void FfnPacker::CheckRow(const GgufTensor& tensor, const std::byte* row) const {
  std::vector<float> weights(static_cast<size_t>(plan_.hidden));
  kernels::Dequantize(tensor.dtype, row, plan_.hidden, weights.data());
  CheckWeights(tensor, weights);
}

void FfnPacker::CheckWeights(const GgufTensor& tensor, std::span<const float> weights) const {
  constexpr uint32_t kSign = 0x80000000, kInfinity = 0x7f800000;  // NaNs are above it
  uint32_t most = 0;
  for (const float w : weights) most = std::max(most, std::bit_cast<uint32_t>(w) & ~kSign);
  const bool is_number = most < kInfinity;
  const bool is_converted = tensor.dtype != plan_.quant;
  if (is_number && !(is_converted && std::bit_cast<float>(most) > kMostWeight)) return;
  throw Error(
      ErrorCode::kCorrupt, source_.path(),
      fmt::format("{} holds weights that are {}", Printable(tensor.name),
                  is_number ? fmt::format("too large for {}", NameOf(plan_.quant)) : "no numbers"));
}

// The rows of these bundles' neurons, neighbours in one read.
void FfnPacker::ReadRows(const Ffn& ffn, const NeuronMatrix& matrix, const Range& bundles,
                         std::span<std::byte> out) {
  const GgufTensor& tensor = *matrix.tensor;
  const uint64_t row_bytes = RowBytesOf(tensor);
  const std::vector<int32_t>& order = ffn.order();
  for (int64_t slot = bundles.begin; slot < bundles.end;) {
    const int32_t first = order[static_cast<size_t>(slot)];
    int64_t run = 1;
    while (slot + run < bundles.end && order[static_cast<size_t>(slot + run)] == first + run) ++run;
    const uint64_t row = matrix.first_row + static_cast<uint64_t>(first);
    const uint64_t begin = ffn.Begin(tensor) + row * row_bytes;
    const uint64_t bytes = static_cast<uint64_t>(run) * row_bytes;
    source_.ReadTensor(tensor, begin,
                       out.subspan(static_cast<uint64_t>(slot - bundles.begin) * row_bytes, bytes));
    if (memory_.drop_page_cache && !memory_.fetch_whole_ffns) {
      source_.DropCached(tensor, begin, bytes);
    }
    slot += run;
  }
}

void FfnPacker::Fetch(const GgufTensor& tensor, const Ffn& ffn) {
  if (memory_.fetch_whole_ffns) {
    source_.WillRead(tensor, ffn.Begin(tensor), ffn.layer.ffn_bytes(tensor));
  }
}

// All of the source: pages are forgotten in runs (BlockReader::DropCached), and what a matrix alone
// leaves at its ends would add up over the layers.
void FfnPacker::DropAll() {
  if (!memory_.drop_page_cache) return;
  for (size_t i = 0; i < source_.num_parts(); ++i) {
    source_.part(i).DropCached(0, source_.part(i).size_bytes());
  }
}

double FfnPacker::down_error() const {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < errors_.size(); ++i) {
    error += errors_[i];
    norm += norms_[i];
  }
  return norm > 0 ? std::sqrt(error / norm) : 0;
}

}  // namespace hearth
