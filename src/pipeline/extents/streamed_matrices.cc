#include "pipeline/extents/streamed_matrices.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/buffer.h"
#include "base/error.h"
#include "base/stopwatch.h"
#include "ops/repack.h"

namespace hearth {
namespace {

size_t BytesOfSlots(const ExtentMap& map, const ExtentPlan& plan) {
  return static_cast<size_t>(plan.SlotsBytes(map.shape()));
}

// Columns of a product, where the matrix's rows [first, first + count) go.
FloatView Columns(const FloatView& out, int64_t first, int64_t count) {
  return {out.data + first, out.rows, count, out.stride};
}

// Gives other extents of a dense model the slots over KV pages, which go page by page, and adds
// them to `keys` and `slots`. Any beginning of their order is spread evenly over the layers, so
// that what pages leave is too.
void SeedLent(const ExtentMap& map, NeuronCache& cache, std::vector<int32_t>& keys,
              std::vector<int32_t>& slots) {
  std::vector<int32_t> others;
  for (const int32_t key : StartExtents(map, map.num_extents())) {
    if (cache.state(key) == CacheState::kAbsent) others.push_back(key);
  }
  const size_t count = others.size();
  keys.resize(slots.size());
  // A step of some 0.618 of all, of no common divisor with their number, comes to each of them.
  size_t step = std::max<size_t>(count * 618 / 1000, 1);
  while (count > 1 && std::gcd(step, count) != 1) ++step;
  for (size_t i = 0; i < count; ++i) {
    const int32_t key = others[i * step % count];
    int32_t slot = 0;
    if (cache.Seed({&key, 1}, {&slot, 1}) == 0) return;
    keys.push_back(key);
    slots.push_back(slot);
  }
}

}  // namespace

NeuronCacheOptions ExtentCacheOptions(const ExtentMap& map, const ExtentPlan& plan,
                                      CachePolicyKind policy) {
  NeuronCacheOptions options = {
      .num_keys = map.num_keys(),
      .num_slots = plan.SlotsBeside(map.shape(), 0),
      .slot_bytes = map.shape().slot_bytes,
      .policy = map.num_experts() > 1 ? policy : CachePolicyKind::kStatic};
  if (map.num_layers() <= NeuronCache::kMaxLayers) options.num_layers = map.num_layers();
  return options;
}

std::vector<int32_t> StartExtents(const ExtentMap& map, int64_t slots) {
  std::vector<int32_t> all;
  for (int64_t expert = 0; expert < map.num_experts(); ++expert) {
    for (int64_t layer = 0; layer < map.num_layers(); ++layer) {
      if (expert >= map.ExpertsOf(layer) || !map.Holds(layer, expert)) continue;
      const int32_t first = map.FirstKey(layer) + map.FirstOf(layer, expert, FfnMatrix::kGate);
      for (int64_t i = 0; i < map.CountOfFfn(layer); ++i) {
        all.push_back(first + static_cast<int32_t>(i));
      }
    }
  }
  const auto total = std::ssize(all);
  if (map.num_experts() > 1 || slots >= total) return all;
  std::vector<int32_t> spread;
  for (int64_t i = 0; i < total; ++i) {
    if ((i + 1) * slots / total > i * slots / total) spread.push_back(all[static_cast<size_t>(i)]);
  }
  return spread;
}

uint64_t StreamedMatrices::ChargedBytes(const ExtentMap& map, const ExtentPlan& plan,
                                        CachePolicyKind policy) {
  return Buffer::ChargedBytes(BytesOfSlots(map, plan)) +
         NeuronCache::TableBytes(ExtentCacheOptions(map, plan, policy)) +
         ExtentReader::ChargedBytes(map, plan.read_buffers);
}

StreamedMatrices::StreamedMatrices(Budget& budget, ExtentMap map,
                                   std::vector<std::unique_ptr<AsyncFile>> files,
                                   const ExtentPlan& plan, CachePolicyKind policy)
    : map_(std::move(map)),
      plan_(plan),
      files_(std::move(files)),
      slot_bytes_(map_.shape().slot_bytes),
      memory_(budget, "FFN matrices", BytesOfSlots(map_, plan), plan.lent.bytes()),
      cache_(std::make_unique<NeuronCache>(
          budget, ExtentCacheOptions(map_, plan, policy),
          std::span(memory_.data(), memory_.size_bytes()).subspan(slot_bytes_))),
      kv_slots_(*cache_, plan.lent, plan.cache_slots, [this] { Abandon(); }),
      reader_(budget, map_, files_, plan.read_buffers),
      current_(map_, *cache_),
      next_(map_, *cache_) {}

StreamedMatrices::~StreamedMatrices() { reader_.Stop(); }

void StreamedMatrices::Fill(Compute& compute,
                            const std::function<void(uint64_t, uint64_t)>& progress) {
  std::vector<int32_t> keys = StartExtents(map_, plan_.cache_slots);
  std::vector<int32_t> slots(keys.size());
  slots.resize(static_cast<size_t>(cache_->Seed(keys, slots)));
  if (!is_mixture()) SeedLent(map_, *cache_, keys, slots);
  std::vector<size_t> order(slots.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return keys[a] < keys[b]; });
  uint64_t total = 0, done = 0;
  for (const size_t i : order) total += map_.At(keys[i]).stored_bytes();
  size_t asked = 0;
  for (const size_t i : order) {
    for (; asked < order.size() && reader_.num_asked() < reader_.capacity(); ++asked) {
      reader_.Ask(keys[order[asked]]);
    }
    const Extent extent = map_.At(keys[i]);
    Unpack(compute, extent, reader_.Take(), Slot(slots[i]));
    reader_.Done();
    done += extent.stored_bytes();
    if (progress) progress(done, total);
  }
  other_bytes_ = reader_.bytes_read();
}

// In pieces of a tile, on all threads.
void StreamedMatrices::Unpack(Compute& compute, const Extent& extent,
                              std::span<const std::byte> stored, std::byte* to) {
  const WeightView view = extent.View(to);
  const uint64_t stored_row = extent.matrix->stored_row_bytes();
  const int64_t tiles = TileLayout::TilesFor(extent.rows);
  const uint64_t piece_bytes = view.is_tiled
                                   ? view.tile_layout().tile_bytes()
                                   : view.row_bytes() * static_cast<uint64_t>(TileLayout::kRows);
  scratch_.resize(static_cast<size_t>(compute.threads()));
  compute.team().ParallelFor(tiles, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile * TileLayout::kRows;
      const int64_t rows = std::min(TileLayout::kRows, extent.rows - first);
      MakeResident(extent.matrix->stored,
                   stored.subspan(static_cast<uint64_t>(first) * stored_row,
                                  static_cast<uint64_t>(rows) * stored_row),
                   rows, view, to + static_cast<uint64_t>(tile) * piece_bytes,
                   scratch_[static_cast<size_t>(worker)]);
    }
  });
}

void StreamedMatrices::BeginPass() {
  if (!current_.is_empty()) Abandon();  // the last pass did not come to its end
  for (const auto& file : files_) file->CheckUnchanged();
}

double StreamedMatrices::ProbeReads(double seconds) {
  Abandon();
  const uint64_t before = reader_.bytes_read();
  const Stopwatch watch;
  for (int64_t i = 0; watch.Seconds() < seconds; ++i) {
    // Layer by layer the extents of one FFN, so that other FFNs' come only after all layers.
    const int64_t layer = i % map_.num_layers();
    const int64_t expert = i / map_.num_layers() % map_.ExpertsOf(layer);
    const int32_t first = map_.FirstKey(layer) + map_.FirstOf(layer, expert, FfnMatrix::kGate);
    for (int64_t k = 0; k < map_.CountOfFfn(layer); ++k) {
      reader_.Ask(first + static_cast<int32_t>(k));
      if (reader_.num_asked() < plan_.read_buffers) continue;
      reader_.Take();
      reader_.Done();
    }
  }
  while (reader_.num_asked() > 0) {
    reader_.Take();
    reader_.Done();
  }
  const uint64_t bytes = reader_.bytes_read() - before;
  other_bytes_ += bytes;
  return static_cast<double>(bytes) / watch.Seconds();
}

WeightView StreamedMatrices::Read(Compute& compute, int64_t layer, int64_t expert, FfnMatrix which,
                                  std::byte* to) {
  Abandon();
  for (const auto& file : files_) file->CheckUnchanged();
  const uint64_t before = reader_.bytes_read();
  const int32_t first = map_.FirstKey(layer) + map_.FirstOf(layer, expert, which);
  const auto end = first + static_cast<int32_t>(map_.CountOf(layer, which));
  WeightView view = map_.Matrix(layer, which).view;
  view.data = to;
  const uint64_t unit = view.is_tiled ? view.tile_layout().tile_bytes() : view.row_bytes();
  const int64_t unit_rows = view.is_tiled ? TileLayout::kRows : 1;
  try {
    int32_t asked = first;
    for (int32_t key = first; key < end; ++key) {
      for (; asked < end && reader_.num_asked() < reader_.capacity(); ++asked) reader_.Ask(asked);
      const Extent extent = map_.At(key);
      Unpack(compute, extent, reader_.Take(),
             to + static_cast<uint64_t>(extent.first_row / unit_rows) * unit);
      reader_.Done();
    }
  } catch (...) {
    Abandon();
    throw;
  }
  other_bytes_ += reader_.bytes_read() - before;
  return view;
}

void StreamedMatrices::BeginLayer(int64_t layer, std::span<int32_t> experts, bool reorder) {
  if (!current_.is_empty() || (!next_.is_empty() && next_.layer() != layer)) Abandon();
  if (!next_.is_empty()) {
    std::swap(current_, next_);
  } else {
    LookUp(layer, experts, reorder, current_);
  }
  if (is_mixture() || map_.num_layers() == 1) return;
  // All of the next layer is wanted, whatever comes; after the last one the next token begins.
  LookUp((layer + 1) % map_.num_layers(), experts, false, next_);
}

// And asks for what is absent.
void StreamedMatrices::LookUp(int64_t layer, std::span<int32_t> experts, bool reorder,
                              ExtentBatch& batch) {
  const int64_t absent = batch.LookUp(layer, experts);
  counts_.neurons += batch.size();
  counts_.hits += batch.size() - absent;
  counts_.misses += absent;
  counts_.reads += absent;
  if (reorder) batch.PutPresentFirst(experts);
  batch.AskForMissing(reader_, experts);
}

void StreamedMatrices::Multiply(Compute& compute, int64_t expert,
                                std::span<const FfnProduct> products, MatMulInput& input) {
  const Stopwatch watch;
  const double waited = reader_.wait_seconds();
  try {
    MultiplyPresent(compute, expert, products, input);
    MultiplyMissing(compute, expert, products, input);
  } catch (...) {
    Abandon();
    throw;
  }
  counts_.wall_seconds += watch.Seconds();
  counts_.idle_seconds += (reader_.wait_seconds() - waited) * compute.threads();
  counts_.bytes_read = reader_.bytes_read() - other_bytes_;
}

// What is in memory in one section.
void StreamedMatrices::MultiplyPresent(Compute& compute, int64_t expert,
                                       std::span<const FfnProduct> products, MatMulInput& input) {
  present_.clear();
  for (const FfnProduct& product : products) {
    const auto [begin, end] = current_.EntriesOf(expert, product.which);
    for (size_t i = begin; i < end; ++i) {
      if (!current_.is_here(i)) continue;
      const Extent extent = map_.At(current_.KeyOf(i));
      present_.push_back({extent.View(Slot(current_.entry(i).slot)),
                          Columns(product.out, extent.first_row, extent.rows)});
    }
  }
  if (!present_.empty()) MatMul(compute, present_, input);
}

// What is read, as it comes: these extents were asked for before all others that are on their way.
void StreamedMatrices::MultiplyMissing(Compute& compute, int64_t expert,
                                       std::span<const FfnProduct> products, MatMulInput& input) {
  int64_t missing = 0;
  for (const FfnProduct& product : products) {
    const auto [begin, end] = current_.EntriesOf(expert, product.which);
    for (size_t i = begin; i < end; ++i) missing += current_.is_here(i) ? 0 : 1;
  }
  for (; missing > 0; --missing) {
    const ExtentReader::Taken taken = reader_.TakeAnyOf(missing);
    const size_t index = current_.IndexOf(taken.key);
    const auto product =
        std::find_if(products.begin(), products.end(), [&](const FfnProduct& candidate) {
          const auto [begin, end] = current_.EntriesOf(expert, candidate.which);
          return begin <= index && index < end;
        });
    if (product == products.end()) {
      throw Error(ErrorCode::kInternal, "StreamedMatrices", "multiplied in another order");
    }
    const Extent extent = map_.At(taken.key);
    const Product rows = {Bring(compute, taken, index),
                          Columns(product->out, extent.first_row, extent.rows)};
    MatMul(compute, {&rows, 1}, input);
  }
}

// Lays an extent out where it is multiplied.
WeightView StreamedMatrices::Bring(Compute& compute, const ExtentReader::Taken& taken,
                                   size_t index) {
  const Extent extent = map_.At(taken.key);
  const CacheEntry& entry = current_.entry(index);
  const bool is_kept = entry.found == CacheFound::kMiss;
  std::byte* to = Slot(is_kept ? entry.slot : kNotKept);
  Unpack(compute, extent, taken.stored, to);
  reader_.Done();
  if (is_kept) current_.SetLoaded(index);
  return extent.View(to);
}

void StreamedMatrices::EndLayer() { current_.Release(); }

// Nothing is in flight or looked up then.
void StreamedMatrices::Abandon() noexcept {
  reader_.Stop();
  current_.Release();
  next_.Release();
}

}  // namespace hearth
