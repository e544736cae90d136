#include "prepare/pack/pack.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/memory_info.h"
#include "base/worker_team.h"
#include "engine/load/ffn_mode.h"
#include "format/packed_file.h"
#include "prepare/pack/ffn_packer.h"
#include "prepare/pack/ordered_work.h"
#include "prepare/pack/pack_plan.h"
#include "storage/disk_space.h"

namespace hearth {
namespace {

// Other tensors are made and written in pieces of about this size.
constexpr uint64_t kTensorPieceBytes = uint64_t{1} << 20;
// Pieces that the system is asked to fetch ahead: threads that take turns do not look like one that
// reads on.
constexpr size_t kPiecesAhead = 8;
// Stacks, allocator slack and small containers that no ledger entry names.
constexpr uint64_t kUnnamedBytes = uint64_t{8} << 20;

void CheckName(const GgufFile& source, const std::string& path) {
  if (path.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "-o", "the name of the file to write is missing");
  }
  for (size_t i = 0; i < source.num_parts(); ++i) {
    std::error_code missing;
    if (std::filesystem::equivalent(path, source.part(i).name(), missing)) {
      throw Error(ErrorCode::kInvalidArgument, path,
                  "is the file to pack and would be replaced; choose another name");
    }
  }
}

uint64_t LimitOf(const PackOptions& options) {
  if (options.memory_bytes) return *options.memory_bytes;
  return DefaultMemoryBytes();
}

// A run of units of a tensor that is no bundle.
struct TensorPiece {
  const PackedTensor* tensor;
  uint64_t begin;
  uint64_t bytes;
};

std::vector<TensorPiece> SplitTensors(const std::vector<PackedTensor>& tensors) {
  std::vector<TensorPiece> pieces;
  for (const PackedTensor& tensor : tensors) {
    const uint64_t unit = tensor.unit_bytes;
    const uint64_t whole = std::max<uint64_t>(1, kTensorPieceBytes / unit) * unit;
    for (uint64_t begin = 0; begin < tensor.bytes; begin += whole) {
      pieces.push_back({&tensor, begin, std::min(whole, tensor.bytes - begin)});
    }
  }
  return pieces;
}

class Packer {
 public:
  Packer(const GgufFile& source, const PackOptions& options, const std::string& path,
         const PackProgressFn& progress)
      : source_(source),
        plan_(PlanPack(source, options)),
        team_(options.threads),
        budget_(LimitOf(options)),
        pieces_(SplitTensors(plan_->others)),
        drop_page_cache_(options.memory_bytes.has_value()),
        choose_mode_(options.choose_mode),
        progress_(progress) {
    const uint64_t program_bytes = ProgramBytes() + kUnnamedBytes;
    PackMemory::Terms terms{.threads = options.threads,
                            .limit_bytes = budget_.limit_bytes(),
                            .used_bytes = program_bytes,
                            .limit_counts_page_cache = drop_page_cache_};
    for (const TensorPiece& piece : pieces_) {
      terms.thread_bytes = std::max(terms.thread_bytes, piece.bytes);
    }
    memory_ = PackMemory::Plan(*plan_, terms);
    program_ = budget_.Charge("program", program_bytes);
    cached_ = budget_.Charge("page cache", memory_.CachedBytes(*plan_));
    writer_ = std::make_unique<PackedWriter>(path, plan_->metadata, plan_->Decls());
    CheckDiskSpace(path, writer_->total_bytes());
    if (!drop_page_cache_) return;
    writer_->KeepOutOfPageCache();
    // What looking at the source has left there counts against the limit, unknown to the ledger.
    for (size_t i = 0; i < source.num_parts(); ++i) {
      source.part(i).DropCached(0, source.part(i).size_bytes());
    }
  }

  PackResult Pack() {
    WriteOthers();
    FfnPacker ffns(source_, *plan_, memory_, team_, budget_);
    ffns.Pack([&](int, std::span<const std::byte> bytes) { writer_->Append(bytes); },
              [&] { Report(); });
    if (choose_mode_) {
      const auto mode = static_cast<uint64_t>(choose_mode_(writer_->Complete()));
      writer_->SetValue(kFfnModeKey, {GgufType::kUint32, mode});
    }
    // Before the file gets its name: who cancels here still finds nothing.
    Report();
    PackResult result;
    result.file_bytes = writer_->total_bytes();
    result.neurons = plan_->neurons;
    result.layout = plan_->layout;
    result.quant = plan_->quant;
    result.predictor_bytes = plan_->predictor_bytes;
    result.down_error = ffns.down_error();
    result.peak_bytes = budget_.peak_bytes();
    writer_->Finish();
    return result;
  }

 private:
  void Report() const {
    if (progress_) progress_(writer_->written_bytes(), writer_->total_bytes());
  }

  void WriteOthers() {
    const auto threads = static_cast<size_t>(team_.size());
    Buffer buffer(budget_, "work", memory_.thread_bytes * threads);
    const auto bytes_of = [&](int worker, size_t piece) {
      return std::span(buffer.data() + static_cast<size_t>(worker) * memory_.thread_bytes,
                       pieces_[piece].bytes);
    };
    for (size_t i = 0; i < kPiecesAhead; ++i) Fetch(i);
    RunPiecesInOrder(
        team_, pieces_.size(),
        [&](int worker, size_t i) {
          Fetch(i + kPiecesAhead);
          pieces_[i].tensor->fill(pieces_[i].begin, bytes_of(worker, i));
          Drop(pieces_[i]);
        },
        [&](int worker, size_t i) {
          writer_->Append(bytes_of(worker, i));
          if (worker == 0) Report();
        });
  }

  void Fetch(size_t piece) const {
    if (piece >= pieces_.size() || pieces_[piece].tensor->copied == nullptr) return;
    source_.WillRead(*pieces_[piece].tensor->copied, pieces_[piece].begin, pieces_[piece].bytes);
  }
  void Drop(const TensorPiece& piece) const {
    if (!drop_page_cache_ || piece.tensor->copied == nullptr) return;
    source_.DropCached(*piece.tensor->copied, piece.begin, piece.bytes);
  }

  const GgufFile& source_;
  const std::unique_ptr<const PackPlan> plan_;
  WorkerTeam team_;
  Budget budget_;
  BudgetCharge program_;
  BudgetCharge cached_;
  const std::vector<TensorPiece> pieces_;
  const bool drop_page_cache_;
  const std::function<FfnMode(const std::string&)>& choose_mode_;
  const PackProgressFn& progress_;
  PackMemory memory_;
  std::unique_ptr<PackedWriter> writer_;
};

}  // namespace

PackResult PackModel(const GgufFile& source, const PackOptions& options, const std::string& path,
                     const PackProgressFn& progress) {
  CheckName(source, path);
  return Packer(source, options, path, progress).Pack();
}

void CheckPack(const GgufFile& source, const PackOptions& options, const std::string& path) {
  CheckName(source, path);
  const PackProgressFn none;
  Packer(source, options, path, none);
}

}  // namespace hearth
