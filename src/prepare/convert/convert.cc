#include "prepare/convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "base/error.h"
#include "format/gguf_writer.h"
#include "kernels/dequantize.h"
#include "ops/repack.h"
#include "prepare/convert/merged_adapters.h"
#include "storage/disk_space.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {
namespace {

// What is read at a time: enough for a disk to be busy.
constexpr uint64_t kConvertBytes = uint64_t{4} << 20;

bool IsFloatType(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

// Readers multiply by these as they are.
bool IsAlwaysF32(const GgufTensor& tensor) {
  const std::string_view name = tensor.name;
  return tensor.num_dims == 1 || name.ends_with(".bias") || name == "position_embd.weight" ||
         name.ends_with("ffn_gate_inp.weight") || name.ends_with("ffn_gate_inp_shexp.weight");
}

// Sums over numbers and what they were rounded to.
struct RoundingSums {
  double squares = 0;  // of the numbers
  double errors = 0;   // squares of the differences

  void Add(float given, float stored) {
    const double error = double{stored} - double{given};
    squares += double{given} * double{given};
    errors += error * error;
  }
  double RelativeError() const { return squares > 0 ? std::sqrt(errors / squares) : 0; }
};

// Embeddings often have more rows than there are tokens; readers want a token for each.
void PadVocabulary(const GgufFile& source, GgufMetadata* metadata) {
  const auto embedding = source.FindShape("token_embd.weight");
  const std::vector<std::string>* texts = metadata->FindStrings("tokenizer.ggml.tokens");
  const auto types = metadata->FindInts("tokenizer.ggml.token_type");
  if (!embedding || texts == nullptr || !types || texts->size() >= (*embedding)[1]) return;
  const auto rows = static_cast<size_t>((*embedding)[1]);
  std::vector<std::string> padded = *texts;
  std::vector<int32_t> padded_types(types->begin(), types->end());
  while (padded.size() < rows) padded.push_back(fmt::format("[unused {}]", padded.size()));
  padded_types.resize(rows, static_cast<int32_t>(TokenType::kUnused));
  metadata->SetStrings("tokenizer.ggml.tokens", std::move(padded));
  metadata->SetInt32s("tokenizer.ggml.token_type", std::move(padded_types));
  if (auto scores = metadata->FindFloats("tokenizer.ggml.scores")) {
    scores->resize(rows, 0.0f);
    metadata->SetFloat32s("tokenizer.ggml.scores", std::move(*scores));
  }
}

class Converter {
 public:
  Converter(const GgufFile& source, const ConvertOptions& options, const std::string& path,
            const ConvertProgressFn& progress)
      : source_(source), options_(options), path_(path), progress_(progress) {}

  ConvertResult Convert() {
    ConvertResult result;
    const std::vector<GgufTensorDecl> decls = Decls(&result.type);
    GgufWriter writer(path_, ModelMetadata(source_, FileTypeOf(result.type)), decls);
    CheckDiskSpace(path_, writer.total_bytes());
    if (!options_.adapters.empty()) {
      adapters_ = MergedAdapters(source_, options_.adapters, budget_);
    }
    const uint64_t wide = kConvertBytes / sizeof(uint16_t) * sizeof(float);
    in_ = Buffer(budget_, "what is read", kConvertBytes);
    out_ = Buffer(budget_, "what is written", wide);
    for (size_t i = 0; i < decls.size(); ++i) {
      WriteTensor(source_.tensors()[i], decls[i].dtype, &writer);
    }
    result.file_bytes = writer.total_bytes();
    result.num_tensors = decls.size();
    result.peak_bytes = budget_.peak_bytes();
    result.num_merged = adapters_.num_changed();
    result.merge_error = merged_.RelativeError();
    writer.Finish();
    return result;
  }

 private:
  std::vector<GgufTensorDecl> Decls(DType* most) const {
    std::vector<GgufTensorDecl> decls;
    std::map<DType, uint64_t> weights;
    for (const GgufTensor& tensor : source_.tensors()) {
      if (!IsWeightType(tensor.dtype)) {
        throw Error(ErrorCode::kUnsupported, source_.path(), "type of " + tensor.name,
                    "a type of weights", NameOf(tensor.dtype));
      }
      GgufTensorDecl decl{.name = tensor.name, .dtype = tensor.dtype};
      decl.ne.assign(tensor.ne.begin(), tensor.ne.begin() + tensor.num_dims);
      if (IsAlwaysF32(tensor)) {
        decl.dtype = DType::kF32;
      } else {
        decl.dtype = options_.type.value_or(tensor.dtype);
        if (!IsFloatType(decl.dtype)) RefuseToMerge(tensor);
        weights[decl.dtype] += tensor.num_weights();
      }
      decls.push_back(std::move(decl));
    }
    const auto largest = std::max_element(weights.begin(), weights.end(),
                                          [](auto& a, auto& b) { return a.second < b.second; });
    if (largest != weights.end()) *most = largest->first;
    return decls;
  }

  // Codes would have to be chosen again.
  void RefuseToMerge(const GgufTensor& tensor) const {
    if (options_.adapters.empty()) return;
    throw Error(ErrorCode::kUnsupported, source_.path(), "type of " + tensor.name,
                "floats to add adapters to, as --type f16, bf16 or f32 makes",
                NameOf(tensor.dtype));
  }

  // Numbers that are read and written at a time, whole blocks.
  static uint64_t PieceOf(DType from) {
    const DTypeInfo& info = InfoOf(from);
    const uint64_t blocks = std::min<uint64_t>(kConvertBytes / info.block_bytes,
                                               kConvertBytes / sizeof(uint16_t) / info.block_size);
    return blocks * info.block_size;
  }

  // Pieces of whole rows where they fit: rows that are put together from afar are read once.
  void WriteTensor(const GgufTensor& tensor, DType to, GgufWriter* writer) {
    const uint64_t at_most = PieceOf(tensor.dtype);
    const uint64_t rows = std::max<uint64_t>(1, at_most / tensor.ne[0]);
    const uint64_t piece = std::min(at_most, rows * tensor.ne[0]);
    for (uint64_t begin = 0; begin < tensor.num_weights(); begin += piece) {
      const auto count = static_cast<size_t>(std::min(piece, tensor.num_weights() - begin));
      const uint64_t next = begin + count;
      const uint64_t ahead = std::min(piece, tensor.num_weights() - next);
      const uint64_t offset = RowBytes(tensor.dtype, begin);
      if (ahead > 0) {
        source_.WillRead(tensor, RowBytes(tensor.dtype, next), RowBytes(tensor.dtype, ahead));
      }
      const std::span<std::byte> in(in_.data(), RowBytes(tensor.dtype, count));
      source_.ReadTensor(tensor, offset, in);
      if (tensor.dtype == to && !adapters_.Change(tensor.name)) {
        writer->Append(in);
      } else {
        ConvertNumbers(tensor, begin, count, to);
        writer->Append({out_.data(), RowBytes(to, count)});
      }
      source_.DropCached(tensor, offset, in.size());
      if (progress_) progress_(writer->written_bytes(), writer->total_bytes());
    }
  }

  // From in_ to out_: numbers of a tensor, the first of which has index `first` in it.
  void ConvertNumbers(const GgufTensor& tensor, uint64_t first, size_t count, DType to) {
    constexpr size_t kChunk = 4096;
    std::array<float, kChunk> given, stored;
    const bool is_merged = adapters_.Change(tensor.name);
    for (size_t begin = 0; begin < count; begin += kChunk) {
      const size_t some = std::min(kChunk, count - begin);
      std::byte* const out = out_.data() + RowBytes(to, begin);
      kernels::Dequantize(tensor.dtype, in_.data() + RowBytes(tensor.dtype, begin),
                          static_cast<int64_t>(some), given.data());
      adapters_.AddTo(tensor, first + begin, std::span(given).first(some));
      kernels::Quantize(to, given.data(), static_cast<int64_t>(some), out);
      kernels::Dequantize(to, out, static_cast<int64_t>(some), stored.data());
      for (size_t i = 0; i < some; ++i) {
        if (std::isfinite(given[i]) && !std::isfinite(stored[i])) {
          RefuseNumber(tensor, to, first + begin + i);
        }
        if (is_merged) merged_.Add(given[i], stored[i]);
      }
    }
  }

  [[noreturn]] void RefuseNumber(const GgufTensor& tensor, DType to, uint64_t index) const {
    throw Error(ErrorCode::kUnsupported, source_.path(),
                fmt::format("number {} of {}", index, tensor.name),
                fmt::format("one within the range of {}", NameOf(to)),
                "a larger one: BF16 and F32 have room for it");
  }

  const GgufFile& source_;
  const ConvertOptions& options_;
  const std::string& path_;
  const ConvertProgressFn& progress_;
  Budget budget_;
  MergedAdapters adapters_;
  RoundingSums merged_;
  Buffer in_;
  Buffer out_;
};

}  // namespace

GgufMetadata ModelMetadata(const GgufFile& source, uint32_t file_type) {
  GgufMetadata metadata = source.metadata();
  metadata.SetString("general.type", "model");
  metadata.SetUint32("general.file_type", file_type);
  metadata.SetUint32("general.quantization_version", kQuantizationVersion);
  PadVocabulary(source, &metadata);
  return metadata;
}

ConvertResult ConvertModel(const GgufFile& source, const ConvertOptions& options,
                           const std::string& path, const ConvertProgressFn& progress) {
  return Converter(source, options, path, progress).Convert();
}

}  // namespace hearth
