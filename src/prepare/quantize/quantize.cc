#include "prepare/quantize/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/buffer.h"
#include "base/error.h"
#include "format/gguf_writer.h"
#include "format/packed_file.h"
#include "kernels/dequantize.h"
#include "kernels/search/search_encode.h"
#include "prepare/convert/convert.h"
#include "storage/disk_space.h"

namespace hearth {
namespace {

// What is read at a time: enough for every thread to have some of it.
constexpr uint64_t kQuantizeBytes = uint64_t{4} << 20;
// What a thread turns into floats at a time; a multiple of all blocks.
constexpr uint64_t kSegment = 2048;

bool HasBlocks(DType type) { return InfoOf(type).block_size > 1; }

// A weight that cannot be stored, and why.
enum class BadWeight : uint8_t { kNone, kNoNumber, kTooLarge };

BadWeight Check(const float* given, uint64_t count, DType to) {
  constexpr float kHalfOverflow = 65520.0f;  // the least that a half rounds to infinity
  for (uint64_t i = 0; i < count; ++i) {
    if (!std::isfinite(given[i])) return BadWeight::kNoNumber;
    if (to == DType::kF16 && std::abs(given[i]) >= kHalfOverflow) return BadWeight::kTooLarge;
  }
  return BadWeight::kNone;
}

// Part of one tensor: some rows as they were read, and as they will be.
struct RowsJob {
  const GgufTensor* tensor = nullptr;
  DType to = DType::kF32;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  uint64_t first_row = 0;
  uint64_t rows = 0;
  const float* importance = nullptr;  // [experts][columns]
};

class Quantizer {
 public:
  Quantizer(const GgufFile& source, const QuantizeOptions& options, WorkerTeam& team)
      : source_(source), options_(options), team_(team) {}

  QuantizeResult Run(const std::string& path, Budget& budget, const QuantizeProgressFn& progress) {
    if (IsPacked(source_.metadata())) {
      throw Error(ErrorCode::kUnsupported, source_.path(),
                  "a packed file cannot be quantized: quantize the model that it came from");
    }
    planned_ = PlanTypes(source_, options_.rules);
    Count();
    GgufWriter writer(path, Metadata(), Decls());
    CheckDiskSpace(path, writer.total_bytes());
    result_.file_bytes = writer.total_bytes();
    Reserve(budget);
    for (size_t i = 0; i < planned_.size(); ++i) {
      WriteTensor(source_.tensors()[i], planned_[i].type, &writer, progress);
    }
    writer.Finish();
    return result_;
  }

 private:
  // Refuses before anything is written.
  void Count() {
    for (size_t i = 0; i < planned_.size(); ++i) {
      const GgufTensor& tensor = source_.tensors()[i];
      const auto& [type, wished] = planned_[i];
      const uint64_t bytes = RowBytes(type, tensor.ne[0]) * (tensor.num_weights() / tensor.ne[0]);
      Add(result_.before[tensor.dtype], tensor, tensor.bytes);
      Add(result_.after[type], tensor, bytes);
      result_.weights += tensor.num_weights();
      result_.source_bytes += tensor.bytes;
      result_.written_bytes += bytes;
      if (type != wished) ++result_.fallbacks[{wished, type}];
      if (type == tensor.dtype) continue;
      if (HasBlocks(tensor.dtype)) CountRequantized(tensor);
      if (options_.importance != nullptr && HasBlocks(type) &&
          options_.importance->Find(source_, tensor) == nullptr) {
        ++result_.without_importance;
      }
    }
  }
  static void Add(TypeTotal& total, const GgufTensor& tensor, uint64_t bytes) {
    ++total.tensors;
    total.weights += tensor.num_weights();
    total.bytes += bytes;
  }
  void CountRequantized(const GgufTensor& tensor) {
    ++result_.requantized;
    if (options_.requantize) return;
    throw Error(ErrorCode::kInvalidArgument, source_.path(),
                fmt::format("{} is quantized already ({}), and quantizing it again loses more than "
                            "starting from F16 or BF16 would: --requantize does it all the same",
                            tensor.name, NameOf(tensor.dtype)));
  }

  GgufMetadata Metadata() const {
    GgufMetadata metadata = ModelMetadata(source_, options_.rules.recipe.file_type);
    if (options_.importance != nullptr) {
      metadata.SetString("quantize.imatrix.file", options_.importance->path());
      metadata.SetUint32("quantize.imatrix.entries_count",
                         static_cast<uint32_t>(options_.importance->entries().size()));
    }
    return metadata;
  }

  std::vector<GgufTensorDecl> Decls() const {
    std::vector<GgufTensorDecl> decls;
    for (size_t i = 0; i < planned_.size(); ++i) {
      const GgufTensor& tensor = source_.tensors()[i];
      GgufTensorDecl decl{.name = tensor.name, .dtype = planned_[i].type};
      decl.ne.assign(tensor.ne.begin(), tensor.ne.begin() + tensor.num_dims);
      decls.push_back(std::move(decl));
    }
    return decls;
  }

  static uint64_t RowsAtATime(const GgufTensor& tensor) {
    const uint64_t row_bytes = RowBytes(tensor.dtype, tensor.ne[0]);
    const uint64_t all = tensor.num_weights() / tensor.ne[0];
    return std::min(all, std::max<uint64_t>(1, kQuantizeBytes / row_bytes));
  }

  void Reserve(Budget& budget) {
    uint64_t in_bytes = 0, out_bytes = 0;
    for (size_t i = 0; i < planned_.size(); ++i) {
      const GgufTensor& tensor = source_.tensors()[i];
      const uint64_t rows = RowsAtATime(tensor);
      in_bytes = std::max(in_bytes, rows * RowBytes(tensor.dtype, tensor.ne[0]));
      out_bytes = std::max(out_bytes, rows * RowBytes(planned_[i].type, tensor.ne[0]));
    }
    in_ = Buffer(budget, "quantizing", in_bytes);
    out_ = Buffer(budget, "quantizing", out_bytes);
  }

  void WriteTensor(const GgufTensor& tensor, DType to, GgufWriter* writer,
                   const QuantizeProgressFn& progress) {
    const uint64_t row_bytes = RowBytes(tensor.dtype, tensor.ne[0]);
    const uint64_t all = tensor.num_weights() / tensor.ne[0];
    const uint64_t piece = RowsAtATime(tensor);
    RowsJob job{.tensor = &tensor, .to = to, .in = in_.data(), .out = out_.data()};
    if (options_.importance != nullptr && to != tensor.dtype && HasBlocks(to)) {
      job.importance = options_.importance->Find(source_, tensor);
    }
    for (uint64_t row = 0; row < all; row += piece) {
      job.first_row = row;
      job.rows = std::min(piece, all - row);
      const std::span<std::byte> in(in_.data(), job.rows * row_bytes);
      const uint64_t next = row + job.rows;
      const uint64_t ahead = std::min(piece, all - next) * row_bytes;
      if (ahead > 0) source_.WillRead(tensor, next * row_bytes, ahead);
      source_.ReadTensor(tensor, row * row_bytes, in);
      if (to == tensor.dtype) {
        writer->Append(in);
      } else {
        EncodeRows(job);
        writer->Append({out_.data(), job.rows * RowBytes(to, tensor.ne[0])});
      }
      source_.DropCached(tensor, row * row_bytes, in.size());
      done_ += in.size();
      if (progress) progress(done_, result_.source_bytes);
    }
  }

  // Rows in segments, so that a few long rows keep all threads busy too.
  void EncodeRows(const RowsJob& job) {
    const uint64_t columns = job.tensor->ne[0];
    const uint64_t segments = (columns + kSegment - 1) / kSegment;
    std::atomic<BadWeight> bad{BadWeight::kNone};
    team_.ParallelFor(static_cast<int64_t>(job.rows * segments), 1,
                      [&](int64_t begin, int64_t end, int) {
                        for (int64_t i = begin; i < end; ++i) {
                          const auto index = static_cast<uint64_t>(i);
                          const BadWeight found =
                              EncodeSegment(job, index / segments, index % segments * kSegment);
                          if (found != BadWeight::kNone) bad = found;
                        }
                      });
    if (bad != BadWeight::kNone) Refuse(job, bad);
  }

  static BadWeight EncodeSegment(const RowsJob& job, uint64_t row, uint64_t column) noexcept {
    const GgufTensor& tensor = *job.tensor;
    const uint64_t columns = tensor.ne[0];
    const uint64_t count = std::min(kSegment, columns - column);
    float given[kSegment];
    const std::byte* const in =
        job.in + row * RowBytes(tensor.dtype, columns) + RowBytes(tensor.dtype, column);
    kernels::Dequantize(tensor.dtype, in, static_cast<int64_t>(count), given);
    const BadWeight bad = Check(given, count, job.to);
    if (bad != BadWeight::kNone) return bad;
    const float* importance = nullptr;
    if (job.importance != nullptr) {
      const uint64_t expert = (job.first_row + row) / tensor.ne[1] % tensor.ne[2];
      importance = job.importance + expert * columns + column;
    }
    kernels::EncodeBySearch(job.to, given, static_cast<int64_t>(count), importance,
                            job.out + row * RowBytes(job.to, columns) + RowBytes(job.to, column));
    return BadWeight::kNone;
  }

  [[noreturn]] void Refuse(const RowsJob& job, BadWeight bad) const {
    if (bad == BadWeight::kTooLarge) {
      throw Error(ErrorCode::kUnsupported, source_.path(), "weights of " + job.tensor->name,
                  "numbers within the range of F16",
                  "a larger one: --tensor gives it BF16 or another type");
    }
    throw Error(ErrorCode::kCorrupt, source_.path(),
                job.tensor->name + " holds weights that are no numbers (NaN or infinite)");
  }

  const GgufFile& source_;
  const QuantizeOptions& options_;
  WorkerTeam& team_;
  std::vector<PlannedTensor> planned_;
  Buffer in_;
  Buffer out_;
  QuantizeResult result_;
  uint64_t done_ = 0;
};

}  // namespace

QuantizeResult QuantizeModel(const GgufFile& source, const QuantizeOptions& options,
                             const std::string& path, WorkerTeam& team, Budget& budget,
                             const QuantizeProgressFn& progress) {
  return Quantizer(source, options, team).Run(path, budget, progress);
}

}  // namespace hearth
