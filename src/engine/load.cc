// From a GGUF file to weights in memory (engine/model.h).
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "engine/model.h"
#include "ops/repack.h"

namespace hearth {
namespace {

// Bytes of the file that one thread reads and converts at a time, and that all together do; the
// sum stays within what Engine::Load reserves for memory without a name.
constexpr uint64_t kChunkBytes = uint64_t{2} << 20;
constexpr uint64_t kAllChunkBytes = uint64_t{4} << 20;
// Chunks that the system is asked to fetch ahead of the one being read: several threads that take
// turns do not look like one that reads on, so it would not do it by itself.
constexpr size_t kChunksAhead = 16;

// A run of rows of one matrix, read, converted and packed as one piece. In tiled matrices it begins
// with a tile.
struct Chunk {
  const ResidentTensor* tensor;
  uint64_t expert;
  uint64_t first_row;
  uint64_t rows;

  uint64_t stored_row_bytes() const {
    return RowBytes(tensor->stored->dtype, static_cast<size_t>(tensor->decl.cols));
  }
  uint64_t stored_bytes() const { return rows * stored_row_bytes(); }
  // Where it begins in the tensor's stored bytes.
  uint64_t stored_offset() const {
    return (expert * static_cast<uint64_t>(tensor->decl.rows) + first_row) * stored_row_bytes();
  }
};

std::vector<Chunk> SplitIntoChunks(const std::vector<ResidentTensor>& tensors, int threads) {
  const uint64_t chunk_bytes =
      std::min(kChunkBytes, kAllChunkBytes / static_cast<uint64_t>(threads));
  std::vector<Chunk> chunks;
  for (const ResidentTensor& tensor : tensors) {
    const auto rows = static_cast<uint64_t>(tensor.decl.rows);
    const auto experts = static_cast<uint64_t>(tensor.decl.experts);
    const uint64_t row_bytes = std::max<uint64_t>(tensor.stored->bytes / (rows * experts), 1);
    const uint64_t unit = tensor.is_tiled ? TileLayout::kRows : 1;
    const uint64_t rows_per_chunk = std::max<uint64_t>(1, chunk_bytes / (row_bytes * unit)) * unit;
    for (uint64_t expert = 0; expert < experts; ++expert) {
      for (uint64_t row = 0; row < rows; row += rows_per_chunk) {
        chunks.push_back({&tensor, expert, row, std::min(rows_per_chunk, rows - row)});
      }
    }
  }
  // As they lie in the files.
  std::sort(chunks.begin(), chunks.end(), [](const Chunk& a, const Chunk& b) {
    const auto place = [](const Chunk& c) {
      return std::pair(c.tensor->stored->file_index, c.tensor->stored->offset + c.stored_offset());
    };
    return place(a) < place(b);
  });
  return chunks;
}

// What a thread needs to load chunks.
struct Staging {
  std::vector<std::byte> stored;
  std::vector<std::byte> converted;
};

// Where the neurons of a bundle tensor lie: all gate rows, then up and down of all.
struct BundleMemory {
  const BundlePlacement& placement;
  std::byte* gates;
  std::byte* rests;

  BundleMemory(const ResidentTensor& tensor, std::byte* memory)
      : placement(*tensor.bundles),
        gates(memory + tensor.offset),
        rests(gates + tensor.neurons() * placement.gate_stride) {}

  RowsView Rows(const ResidentTensor& tensor, BundleRole role) const {
    const bool is_gate = role == BundleRole::kGate;
    return {.data = is_gate                     ? gates
                    : role == BundleRole::kDown ? rests + placement.down_offset
                                                : rests,
            .dtype = placement.layout.Part(role).dtype,
            .stride = is_gate ? placement.gate_stride : placement.rest_stride,
            .cols = placement.hidden_size,
            .rows = tensor.decl.rows,
            .experts = tensor.decl.experts};
  }
};

void LoadBundles(const GgufFile& file, const Chunk& chunk, std::byte* memory, Staging& staging) {
  const ResidentTensor& tensor = *chunk.tensor;
  const BundleMemory to(tensor, memory);
  const BundleLayout& layout = to.placement.layout;
  const BundlePart& gate = layout.Part(BundleRole::kGate);
  const BundlePart& up = layout.Part(BundleRole::kUp);
  const BundlePart& down = layout.Part(BundleRole::kDown);
  staging.stored.resize(chunk.stored_bytes());
  file.ReadTensor(*tensor.stored, chunk.stored_offset(), staging.stored);
  const uint64_t first = chunk.expert * static_cast<uint64_t>(tensor.decl.rows) + chunk.first_row;
  for (uint64_t i = 0; i < chunk.rows; ++i) {
    const std::span<const std::byte> bundle =
        std::span(staging.stored).subspan(i * layout.stride, layout.stride);
    if (!BundleIsIntact(layout, bundle)) {
      throw Error(ErrorCode::kCorrupt, file.path(),
                  fmt::format("neuron {} of {} is damaged: its check does not fit", first + i,
                              tensor.decl.name));
    }
    const size_t neuron = first + i;
    std::byte* rest = to.rests + neuron * to.placement.rest_stride;
    std::memcpy(to.gates + neuron * to.placement.gate_stride, &bundle[gate.offset], gate.bytes);
    std::memcpy(rest, &bundle[up.offset], up.bytes);
    std::memcpy(rest + to.placement.down_offset, &bundle[down.offset], down.bytes);
  }
}

void LoadChunk(const GgufFile& file, const Chunk& chunk, std::byte* memory, Staging& staging) {
  if (chunk.tensor->bundles) return LoadBundles(file, chunk, memory, staging);
  const ResidentTensor& tensor = *chunk.tensor;
  const DType stored = tensor.stored->dtype;
  const auto rows = static_cast<int64_t>(chunk.rows);
  const int64_t cols = tensor.decl.cols;
  const size_t resident_row = RowBytes(tensor.dtype, static_cast<size_t>(cols));
  const size_t rows_offset = tensor.is_tiled ? chunk.first_row / TileLayout::kRows *
                                                   TileLayout(tensor.dtype, cols).tile_bytes()
                                             : chunk.first_row * resident_row;
  std::byte* out =
      memory + tensor.offset + chunk.expert * tensor.View(memory).expert_bytes() + rows_offset;
  if (tensor.dtype == stored && !tensor.is_tiled) {
    file.ReadTensor(*tensor.stored, chunk.stored_offset(), {out, chunk.stored_bytes()});
    return;
  }
  staging.stored.resize(chunk.stored_bytes());
  file.ReadTensor(*tensor.stored, chunk.stored_offset(), staging.stored);
  MakeResident(stored, staging.stored, rows, tensor.View(memory), out, staging.converted);
}

// Reads all chunks on all threads; the calling thread reports progress between its own chunks.
// The first error of any thread stops the others and is thrown here.
class ParallelLoad {
 public:
  ParallelLoad(const GgufFile& file, const LoadPlan& plan, int threads, std::byte* weights,
               const ProgressFn& progress)
      : file_(file),
        chunks_(SplitIntoChunks(plan.tensors, threads)),
        drop_page_cache_(plan.drop_page_cache),
        weights_(weights),
        progress_(progress) {
    for (const Chunk& chunk : chunks_) total_bytes_ += chunk.stored_bytes();
  }

  void Run(Compute& compute) {
    for (size_t i = 0; i < std::min(kChunksAhead, chunks_.size()); ++i) Fetch(chunks_[i]);
    compute.team().Run([this](int worker) { Work(worker); });
    // What the ends of chunks share with bytes that are not loaded.
    if (drop_page_cache_) file_.DropCached();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void Fetch(const Chunk& chunk) const {
    file_.WillRead(*chunk.tensor->stored, chunk.stored_offset(), chunk.stored_bytes());
  }

  void Work(int worker) noexcept {
    try {
      Staging staging;
      for (size_t i = next_++; i < chunks_.size() && !stop_; i = next_++) {
        const Chunk& chunk = chunks_[i];
        if (i + kChunksAhead < chunks_.size()) Fetch(chunks_[i + kChunksAhead]);
        LoadChunk(file_, chunk, weights_, staging);
        if (drop_page_cache_) {
          file_.DropCached(*chunk.tensor->stored, chunk.stored_offset(), chunk.stored_bytes());
        }
        done_bytes_ += chunk.stored_bytes();
        if (worker == 0 && progress_) progress_(done_bytes_, total_bytes_);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      stop_ = true;
    }
  }

  const GgufFile& file_;
  const std::vector<Chunk> chunks_;
  const bool drop_page_cache_;
  std::byte* const weights_;
  const ProgressFn& progress_;
  uint64_t total_bytes_ = 0;
  std::atomic<size_t> next_{0};
  std::atomic<uint64_t> done_bytes_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::exception_ptr error_;  // guarded by mutex_ while threads run
};

void SetRows(const ResidentTensor& tensor, std::byte* memory, ModelWeights& weights) {
  const BundleMemory bundles(tensor, memory);
  LayerWeights& layer = weights.layers[static_cast<size_t>(bundles.placement.layer)];
  layer.gate_rows = bundles.Rows(tensor, BundleRole::kGate);
  layer.up_rows = bundles.Rows(tensor, BundleRole::kUp);
  layer.down_rows = bundles.Rows(tensor, BundleRole::kDown);
}

void CheckRopeFactors(const WeightView& factors, const std::string& file) {
  const auto* values = reinterpret_cast<const float*>(factors.data);
  for (int64_t i = 0; !factors.empty() && i < factors.cols; ++i) {
    if (!(values[i] > 0) || !std::isfinite(values[i])) {
      throw Error(ErrorCode::kCorrupt, file, "rope_freqs.weight", "positive numbers",
                  std::to_string(values[i]));
    }
  }
}

}  // namespace

std::unique_ptr<Model> Model::Load(const GgufFile& file, LoadPlan plan,
                                   std::unique_ptr<Tokenizer> tokenizer, Budget& budget,
                                   Compute& compute, const ProgressFn& progress) {
  std::unique_ptr<Model> model(new Model());
  model->path_ = file.path();
  model->metadata_ = file.metadata();
  model->tokenizer_ = std::move(tokenizer);
  if (static_cast<int64_t>(model->tokenizer_->vocab_size()) > plan.spec.vocab_size) {
    throw Error(ErrorCode::kCorrupt, file.path(), "tokens of the vocabulary",
                "at most the embedding's " + std::to_string(plan.spec.vocab_size),
                std::to_string(model->tokenizer_->vocab_size()));
  }
  model->memory_ = Buffer(budget, "weights", plan.weights_bytes);
  ParallelLoad(file, plan, compute.threads(), model->memory_.data(), progress).Run(compute);
  for (const ResidentTensor& tensor : plan.tensors) {
    if (tensor.bundles) {
      SetRows(tensor, model->memory_.data(), *plan.weights);
    } else {
      *tensor.decl.slot = tensor.View(model->memory_.data());
    }
  }
  CheckRopeFactors(plan.weights->rope_factors, file.path());
  if (plan.spec.tied_embeddings) plan.weights->output = plan.weights->token_embedding;
  model->spec_ = std::move(plan.spec);
  model->weights_ = std::move(plan.weights);
  model->predictors_ = std::move(plan.predictors);
  return model;
}

}  // namespace hearth
