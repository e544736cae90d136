#include "prepare/synth.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "base/worker_team.h"
#include "format/gguf_writer.h"
#include "prepare/synth_plan.h"
#include "prepare/weight_generator.h"

namespace hearth {
namespace {

// Bytes made and written at a time; part of what a seed means, as every chunk has random numbers
// of its own. Small enough to be written out of the second-level cache, large enough that system
// calls and waiting for turns do not show: of 0.5, 1, 2 and 4 MiB the fastest.
constexpr uint64_t kChunkBytes = uint64_t{1} << 20;

// A run of blocks of one tensor.
struct Chunk {
  const SynthTensor* tensor;
  uint64_t tensor_index;
  uint64_t index;  // in its tensor
  size_t bytes;
};

uint64_t WeightsOf(const SynthTensor& tensor) {
  uint64_t weights = 1;
  for (const uint64_t n : tensor.decl.ne) weights *= n;
  return weights;
}

std::vector<Chunk> SplitIntoChunks(const std::vector<SynthTensor>& tensors) {
  std::vector<Chunk> chunks;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const DTypeInfo& info = InfoOf(tensors[t].decl.dtype);
    const uint64_t whole_chunk = kChunkBytes / info.block_bytes * info.block_bytes;
    uint64_t left = WeightsOf(tensors[t]) / info.block_size * info.block_bytes;
    for (uint64_t index = 0; left > 0; ++index) {
      const uint64_t bytes = std::min(left, whole_chunk);
      chunks.push_back({&tensors[t], t, index, static_cast<size_t>(bytes)});
      left -= bytes;
    }
  }
  return chunks;
}

// Makes and writes all chunks. Every worker takes the next chunk, makes it in its own buffer,
// waits for its turn and writes it: while one writes the others make theirs, and the disk never
// waits unless making is what takes the time.
//
// Turns cannot deadlock: chunks are taken in order, so that the worker whose turn it is always
// holds its chunk, and it waits for nobody.
class ChunkPipeline {
 public:
  ChunkPipeline(std::vector<Chunk> chunks, uint64_t seed, GgufWriter& writer,
                const SynthProgressFn& progress)
      : chunks_(std::move(chunks)), generator_(seed), writer_(writer), progress_(progress) {}

  void Run(WorkerTeam& team) {
    team.Run([this](int worker) { Work(worker); });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void Work(int worker) noexcept {
    try {
      std::vector<std::byte> buffer(static_cast<size_t>(kChunkBytes));
      for (size_t i = next_++; i < chunks_.size(); i = next_++) {
        const Chunk& chunk = chunks_[i];
        const std::span<std::byte> bytes = std::span(buffer).first(chunk.bytes);
        generator_.Fill(chunk.tensor->decl.dtype, chunk.tensor->distribution, chunk.tensor_index,
                        chunk.index, bytes);
        if (!AwaitTurn(i)) return;
        writer_.Append(bytes);
        if (worker == 0 && progress_) progress_(writer_.written_bytes(), writer_.total_bytes());
        PassTurn();
      }
    } catch (...) {
      Fail(std::current_exception());
    }
  }

  // False where the work has failed elsewhere.
  bool AwaitTurn(size_t chunk) {
    std::unique_lock lock(mutex_);
    turn_changed_.wait(lock, [&] { return turn_ == chunk || error_; });
    return !error_;
  }
  void PassTurn() {
    {
      const std::lock_guard lock(mutex_);
      ++turn_;
    }
    turn_changed_.notify_all();
  }
  void Fail(std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::move(error);
    }
    turn_changed_.notify_all();
  }

  const std::vector<Chunk> chunks_;
  const WeightGenerator generator_;
  GgufWriter& writer_;  // used by the worker whose turn it is
  const SynthProgressFn& progress_;
  std::atomic<size_t> next_{0};  // chunk to take
  std::mutex mutex_;
  std::condition_variable turn_changed_;
  size_t turn_ = 0;           // chunk to write; guarded by mutex_
  std::exception_ptr error_;  // guarded by mutex_ while workers run
};

// A disk that fills up after minutes is worse news than one that is known to be too small.
void CheckDiskSpace(const std::string& path, uint64_t needed_bytes) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  struct statvfs info = {};
  if (statvfs(folder.c_str(), &info) != 0) return;  // unknown; writing will tell
  const uint64_t free_bytes = uint64_t{info.f_bavail} * uint64_t{info.f_frsize};
  if (needed_bytes <= free_bytes) return;
  throw Error(ErrorCode::kIo, path, "free disk space",
              fmt::format("at least {}", FormatSize(needed_bytes)), FormatSize(free_bytes));
}

}  // namespace

SynthResult SynthesizeModel(const ModelShape& shape, const SynthOptions& options,
                            const std::string& path, const SynthProgressFn& progress) {
  if (path.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "-o", "the name of the file to write is missing");
  }
  SynthPlan plan = PlanSynth(shape, options.quant, options.seed);
  SynthResult result;
  std::vector<GgufTensorDecl> decls;
  for (const SynthTensor& tensor : plan.tensors) {
    decls.push_back(tensor.decl);
    result.num_weights += WeightsOf(tensor);
  }
  result.num_tensors = decls.size();
  WorkerTeam team(options.threads);
  GgufWriter writer(path, plan.metadata, std::move(decls));
  result.file_bytes = writer.total_bytes();
  CheckDiskSpace(path, result.file_bytes);
  plan.metadata = {};  // the vocabulary is written and may be large
  ChunkPipeline(SplitIntoChunks(plan.tensors), options.seed, writer, progress).Run(team);
  writer.Finish();
  if (progress) progress(result.file_bytes, result.file_bytes);
  return result;
}

}  // namespace hearth
