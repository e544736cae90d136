// From a GGUF file to weights in memory (engine/load/model.h).
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/load/load_chunks.h"
#include "engine/load/load_hashes.h"
#include "engine/load/model.h"
#include "import/open_model.h"
#include "ops/repack.h"

namespace hearth {
namespace {

// Bytes of the file that one thread reads and converts at a time, and that all together have read
// or are reading. The first kUnnamedBuffers of them are in what Engine::Load reserves for memory
// without a name; the others are taken where the budget has room for them.
constexpr uint64_t kChunkBytes = uint64_t{1} << 20;
constexpr uint64_t kAllBuffers = uint64_t{16} << 20;
constexpr uint64_t kUnnamedBuffers = uint64_t{4} << 20;
// Of a thread, where that is no more than kUnnamedBuffers for all: one read while one is converted.
constexpr uint64_t kFewestBuffers = 2;

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
    const BundleLayout& layout = placement.layout;
    RowsView rows;
    if (role == BundleRole::kGate) {
      rows = RowsOfPart(layout, role, placement.hidden_size, tensor.decl.rows,
                        gates - GateChecked(layout).offset, placement.gate_stride);
    } else if (layout.FindPart(role) != nullptr) {
      const size_t at = role == BundleRole::kDown ? placement.down_offset : 0;
      rows = RowsOfPart(layout, role, placement.hidden_size, tensor.decl.rows,
                        rests + at - layout.Part(role).offset, placement.rest_stride);
    }
    rows.experts = tensor.decl.experts;
    return rows;
  }
};

void PlaceBundles(const std::string& path, const LoadChunk& chunk,
                  std::span<const std::byte> stored, std::byte* memory) {
  const ResidentTensor& tensor = *chunk.tensor;
  const BundleMemory to(tensor, memory);
  const BundleLayout& layout = to.placement.layout;
  const CheckedPart gate = GateChecked(layout);
  const BundlePart* const up = layout.FindPart(BundleRole::kUp);
  const BundlePart& down = layout.Part(BundleRole::kDown);
  const uint64_t first = chunk.expert * static_cast<uint64_t>(tensor.decl.rows) + chunk.first_row;
  for (uint64_t i = 0; i < chunk.rows; ++i) {
    const std::span<const std::byte> bundle = stored.subspan(i * layout.stride, layout.stride);
    if (!BundleIsIntact(layout, bundle)) {
      throw Error(
          ErrorCode::kCorrupt, path,
          fmt::format("neuron {} of {} is damaged: its check does not fit",
                      static_cast<uint64_t>(tensor.decl.first) + first + i, tensor.decl.name));
    }
    const size_t neuron = first + i;
    std::byte* rest = to.rests + neuron * to.placement.rest_stride;
    std::memcpy(to.gates + neuron * to.placement.gate_stride, &bundle[gate.offset], gate.bytes);
    if (up != nullptr) std::memcpy(rest, &bundle[up->offset], up->bytes);
    std::memcpy(rest + to.placement.down_offset, &bundle[down.offset], down.bytes);
  }
}

// `converted` is scratch memory of the thread.
void PlaceRows(const LoadChunk& chunk, std::span<const std::byte> stored, std::byte* memory,
               std::vector<std::byte>& converted) {
  const ResidentTensor& tensor = *chunk.tensor;
  const WeightView view = tensor.View(memory);
  const uint64_t rows_offset =
      tensor.is_tiled
          ? chunk.first_row / TileLayout::kRows * TileLayout(tensor.dtype, view.cols).tile_bytes()
          : chunk.first_row * RowBytes(tensor.dtype, static_cast<size_t>(view.cols));
  std::byte* out = memory + tensor.offset + chunk.expert * view.expert_bytes() + rows_offset;
  MakeResident(tensor.stored->dtype, stored, static_cast<int64_t>(chunk.rows), view, out,
               converted);
}

// Reads all chunks on all threads; the calling thread reports progress between its own chunks, and
// the end. The first error of any thread stops the others and is thrown here.
class ParallelLoad {
 public:
  ParallelLoad(const GgufFile& file, const LoadPlan& plan, int threads, std::byte* weights,
               Budget& budget, const ProgressFn& progress)
      : source_(file, plan.io, !plan.drop_page_cache),
        hashes_(file, plan.tensors),
        weights_(weights),
        progress_(progress) {
    const auto per_thread = static_cast<uint64_t>(threads);
    chunks_ = SplitIntoChunks(
        plan.tensors, std::min(kChunkBytes, kUnnamedBuffers / (per_thread * kFewestBuffers)));
    for (const LoadChunk& chunk : chunks_) {
      total_bytes_ += chunk.stored_bytes();
      largest_bytes_ = std::max(largest_bytes_, chunk.stored_bytes());
    }
    const uint64_t of_all = LoadReader::BufferBytes(largest_bytes_) * per_thread;
    const uint64_t room =
        std::min(budget.limit_bytes() - budget.used_bytes(), kAllBuffers - kUnnamedBuffers);
    const uint64_t buffers = (kUnnamedBuffers + room) / of_all;
    buffers_per_thread_ = std::max(buffers, kFewestBuffers);
    if (buffers > kFewestBuffers) {
      const uint64_t bytes = buffers * of_all;
      charge_ = budget.Charge("load buffers", bytes - std::min(bytes, kUnnamedBuffers));
    }
  }

  void Run(Compute& compute) {
    compute.team().Run([this](int worker) { Work(worker); });
    // What the ends of chunks share with bytes that are not loaded.
    if (source_.drops_cache()) source_.file().DropCached();
    if (error_) std::rethrow_exception(error_);
    if (progress_) progress_(total_bytes_, total_bytes_);
  }

 private:
  void Work(int worker) noexcept {
    try {
      LoadReader reader(source_, largest_bytes_, buffers_per_thread_);
      std::vector<std::byte> converted;
      while (!stop_) {
        while (!reader.full() && next_ < chunks_.size()) {
          if (const size_t i = next_++; i < chunks_.size()) reader.Ask(chunks_[i]);
        }
        if (reader.empty()) return;
        const LoadReader::Taken taken = reader.Take();
        const Stopwatch watch;
        hashes_.Add(taken.chunk, taken.stored);
        if (taken.chunk.tensor->bundles) {
          PlaceBundles(source_.file().path(), taken.chunk, taken.stored, weights_);
        } else {
          PlaceRows(taken.chunk, taken.stored, weights_, converted);
        }
        reader.Done(watch.Seconds());
        done_bytes_ += taken.stored.size();
        if (worker == 0 && progress_) progress_(done_bytes_, total_bytes_);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      stop_ = true;
      hashes_.Stop();
    }
  }

  LoadSource source_;
  LoadHashes hashes_;
  std::byte* const weights_;
  const ProgressFn& progress_;
  std::vector<LoadChunk> chunks_;
  uint64_t total_bytes_ = 0;
  uint64_t largest_bytes_ = 0;  // of a chunk
  uint64_t buffers_per_thread_ = 0;
  BudgetCharge charge_;
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

}  // namespace

std::unique_ptr<Model> Model::Load(const GgufFile& file, LoadPlan plan,
                                   std::unique_ptr<Tokenizer> tokenizer, Budget& budget,
                                   Compute& compute, const ProgressFn& progress) {
  std::unique_ptr<Model> model(new Model());
  model->path_ = file.path();
  model->metadata_ = file.metadata();
  model->assumed_ = file.assumed();
  model->tokenizer_ = std::move(tokenizer);
  CheckVocabulary(plan.spec, *model->tokenizer_, file.path());
  CheckRopeFactors(file);
  model->memory_ = Buffer(budget, "weights", plan.weights_bytes);
  ParallelLoad(file, plan, compute.threads(), model->memory_.data(), budget, progress).Run(compute);
  for (const ResidentTensor& tensor : plan.tensors) {
    if (tensor.bundles) {
      SetRows(tensor, model->memory_.data(), *plan.weights);
    } else {
      *tensor.decl.slot = tensor.View(model->memory_.data());
    }
  }
  if (plan.spec.tied_embeddings) plan.weights->output = plan.weights->token_embedding;
  model->spec_ = std::move(plan.spec);
  model->weights_ = std::move(plan.weights);
  model->predictors_ = std::move(plan.predictors);
  return model;
}

std::string Model::name() const {
  const std::filesystem::path file(path_);
  return (file.extension() == ".gguf" ? file.stem() : file.filename()).string();
}

GgufFile Model::Reopen() const {
  GgufFile file = OpenModel(path_);
  for (const auto& [key, value] : assumed_.values()) file.Assume(key, value);
  return file;
}

void Model::SetActivation(const FfnSpec& as) {
  for (LayerSpec& layer : spec_.layers) {
    layer.ffn.activation = as.activation;
    layer.ffn.threshold = as.threshold;
  }
}

}  // namespace hearth
