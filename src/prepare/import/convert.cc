#include "prepare/import/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string_view>
#include <vector>

#include "base/budget.h"
#include "base/buffer.h"
#include "base/error.h"
#include "format/gguf_writer.h"
#include "storage/disk_space.h"
#include "tensor/half.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {
namespace {

// What is read at a time: enough for a disk to be busy.
constexpr uint64_t kConvertBytes = uint64_t{4} << 20;

constexpr uint32_t kQuantizationVersion = 2;  // of general.quantization_version

// Numbers of general.file_type.
uint32_t FileTypeOf(DType type) {
  switch (type) {
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 32;
    default:
      return 0;
  }
}

bool IsFloatType(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

// Readers multiply by these as they are.
bool IsAlwaysF32(const GgufTensor& tensor) {
  const std::string_view name = tensor.name;
  return tensor.num_dims == 1 || name.ends_with(".bias") || name == "position_embd.weight" ||
         name.ends_with("ffn_gate_inp.weight") || name.ends_with("ffn_gate_inp_shexp.weight");
}

// How each type's numbers become floats and come of them. Rounding may leave their range.
template <DType type>
struct Numbers;
template <>
struct Numbers<DType::kF32> {
  using Stored = float;
  static float Widen(float stored) { return stored; }
  static float Narrow(float value) { return value; }
  static bool IsFinite(float stored) { return std::isfinite(stored); }
};
template <>
struct Numbers<DType::kF16> {
  using Stored = uint16_t;
  static float Widen(uint16_t stored) { return HalfToFloat(stored); }
  static uint16_t Narrow(float value) { return FloatToHalf(value); }
  static bool IsFinite(uint16_t stored) { return (stored & 0x7c00) != 0x7c00; }
};
template <>
struct Numbers<DType::kBF16> {
  using Stored = uint16_t;
  static float Widen(uint16_t stored) { return Bf16ToFloat(stored); }
  static uint16_t Narrow(float value) { return FloatToBf16(value); }
  static bool IsFinite(uint16_t stored) { return (stored & 0x7f80) != 0x7f80; }
};

// The index of the first number that is finite in one type and not in the other; `count` where
// there is none.
template <DType from, DType to>
size_t ConvertNumbers(const std::byte* in, size_t count, std::byte* out) {
  typename Numbers<from>::Stored stored;
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(&stored, in + i * sizeof(stored), sizeof(stored));
    const auto narrowed = Numbers<to>::Narrow(Numbers<from>::Widen(stored));
    if (!Numbers<to>::IsFinite(narrowed) && Numbers<from>::IsFinite(stored)) return i;
    std::memcpy(out + i * sizeof(narrowed), &narrowed, sizeof(narrowed));
  }
  return count;
}

using ConvertNumbersFn = size_t (*)(const std::byte* in, size_t count, std::byte* out);

template <DType from>
ConvertNumbersFn ConverterTo(DType to) {
  if (to == DType::kF16) return ConvertNumbers<from, DType::kF16>;
  if (to == DType::kBF16) return ConvertNumbers<from, DType::kBF16>;
  return ConvertNumbers<from, DType::kF32>;
}

ConvertNumbersFn FindConverter(DType from, DType to) {
  if (from == DType::kF16) return ConverterTo<DType::kF16>(to);
  if (from == DType::kBF16) return ConverterTo<DType::kBF16>(to);
  return ConverterTo<DType::kF32>(to);
}

class Converter {
 public:
  Converter(const GgufFile& source, const ConvertOptions& options, const std::string& path,
            const ConvertProgressFn& progress)
      : source_(source), options_(options), path_(path), progress_(progress) {}

  ConvertResult Convert() {
    ConvertResult result;
    const std::vector<GgufTensorDecl> decls = Decls(&result.type);
    GgufWriter writer(path_, Metadata(result.type), decls);
    CheckDiskSpace(path_, writer.total_bytes());
    const uint64_t wide = kConvertBytes / sizeof(uint16_t) * sizeof(float);
    in_ = Buffer(budget_, "what is read", kConvertBytes);
    out_ = Buffer(budget_, "what is written", wide);
    for (size_t i = 0; i < decls.size(); ++i) {
      WriteTensor(source_.tensors()[i], decls[i].dtype, &writer);
    }
    result.file_bytes = writer.total_bytes();
    result.num_tensors = decls.size();
    result.peak_bytes = budget_.peak_bytes();
    writer.Finish();
    return result;
  }

 private:
  std::vector<GgufTensorDecl> Decls(DType* most) const {
    std::vector<GgufTensorDecl> decls;
    std::map<DType, uint64_t> weights;
    for (const GgufTensor& tensor : source_.tensors()) {
      if (!IsFloatType(tensor.dtype)) {
        throw Error(ErrorCode::kUnsupported, source_.path(), "type of " + tensor.name,
                    "F32, F16 or BF16", NameOf(tensor.dtype));
      }
      GgufTensorDecl decl{.name = tensor.name, .dtype = tensor.dtype};
      decl.ne.assign(tensor.ne.begin(), tensor.ne.begin() + tensor.num_dims);
      if (IsAlwaysF32(tensor)) {
        decl.dtype = DType::kF32;
      } else {
        decl.dtype = options_.type.value_or(tensor.dtype);
        weights[decl.dtype] += tensor.num_weights();
      }
      decls.push_back(std::move(decl));
    }
    const auto largest = std::max_element(weights.begin(), weights.end(),
                                          [](auto& a, auto& b) { return a.second < b.second; });
    if (largest != weights.end()) *most = largest->first;
    return decls;
  }

  GgufMetadata Metadata(DType type) const {
    GgufMetadata metadata = source_.metadata();
    metadata.SetString("general.type", "model");
    metadata.SetUint32("general.file_type", FileTypeOf(type));
    metadata.SetUint32("general.quantization_version", kQuantizationVersion);
    PadVocabulary(&metadata);
    return metadata;
  }

  // Embeddings often have more rows than there are tokens; readers want a token for each.
  void PadVocabulary(GgufMetadata* metadata) const {
    const auto embedding = source_.FindShape("token_embd.weight");
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

  // Pieces of whole rows where they fit: rows that are put together from afar are read once.
  void WriteTensor(const GgufTensor& tensor, DType to, GgufWriter* writer) {
    const uint64_t from_bytes = InfoOf(tensor.dtype).block_bytes;
    const uint64_t to_bytes = InfoOf(to).block_bytes;
    const uint64_t at_most = kConvertBytes / from_bytes;
    const uint64_t rows = std::max<uint64_t>(1, at_most / tensor.ne[0]);
    const uint64_t piece = std::min(at_most, rows * tensor.ne[0]);
    for (uint64_t begin = 0; begin < tensor.num_weights(); begin += piece) {
      const auto count = static_cast<size_t>(std::min(piece, tensor.num_weights() - begin));
      const uint64_t next = begin + count;
      const uint64_t ahead = std::min(piece, tensor.num_weights() - next);
      if (ahead > 0) source_.WillRead(tensor, next * from_bytes, ahead * from_bytes);
      const std::span<std::byte> in(in_.data(), count * from_bytes);
      source_.ReadTensor(tensor, begin * from_bytes, in);
      if (tensor.dtype == to) {
        writer->Append(in);
      } else {
        const size_t done = FindConverter(tensor.dtype, to)(in.data(), count, out_.data());
        if (done < count) RefuseNumber(tensor, to, begin + done);
        writer->Append({out_.data(), count * to_bytes});
      }
      source_.DropCached(tensor, begin * from_bytes, in.size());
      if (progress_) progress_(writer->written_bytes(), writer->total_bytes());
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
  Buffer in_;
  Buffer out_;
};

}  // namespace

ConvertResult ConvertModel(const GgufFile& source, const ConvertOptions& options,
                           const std::string& path, const ConvertProgressFn& progress) {
  return Converter(source, options, path, progress).Convert();
}

}  // namespace hearth
