#include "prepare/quantize/importance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "format/gguf_writer.h"

namespace hearth {
namespace {

constexpr std::string_view kSquares = ".in_sum2";
constexpr std::string_view kCounts = ".counts";

constexpr int32_t kMostEntries = 1 << 20;
constexpr int32_t kLongestName = 1 << 10;

std::vector<float> ReadFloats(const GgufFile& file, const GgufTensor& tensor) {
  if (tensor.dtype != DType::kF32) {
    throw Error(ErrorCode::kCorrupt, file.path(), "type of " + Printable(tensor.name), "F32",
                NameOf(tensor.dtype));
  }
  std::vector<float> values(tensor.num_weights());
  file.ReadTensor(tensor, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

// Sums of squares over tokens. An expert that no token reached has no importance: zeros.
void Average(std::vector<float>& sums, const std::vector<float>& counts) {
  const size_t columns = sums.size() / counts.size();
  for (size_t i = 0; i < sums.size(); ++i) {
    const float count = counts[i / columns];
    sums[i] = count > 0 ? sums[i] / count : 0.0f;
  }
}

// Fields of the legacy form, one after the other.
class LegacyCursor {
 public:
  explicit LegacyCursor(const BlockReader& reader) : reader_(reader) {}

  uint64_t left() const { return reader_.size_bytes() - at_; }

  // A whole number from `least` to `most`.
  int32_t Number(const char* what, int32_t least, int32_t most) {
    int32_t number = 0;
    Take(what, std::as_writable_bytes(std::span(&number, 1)));
    if (number < least || number > most) {
      Refuse(what, fmt::format("{} to {}", least, most), std::to_string(number));
    }
    return number;
  }
  std::string Name() {
    std::string name(static_cast<size_t>(Number("length of a name", 1, kLongestName)), '\0');
    Take("a name", std::as_writable_bytes(std::span(name)));
    return name;
  }
  std::vector<float> Values() {
    const auto most = static_cast<int32_t>(
        std::min<uint64_t>(left() / sizeof(float), std::numeric_limits<int32_t>::max()));
    std::vector<float> values(static_cast<size_t>(Number("number of values", 1, most)));
    Take("values", std::as_writable_bytes(std::span(values)));
    return values;
  }

 private:
  void Take(const char* what, std::span<std::byte> out) {
    if (out.size() > left()) {
      Refuse(what, fmt::format("{} bytes", out.size()), fmt::format("the end after {}", left()));
    }
    reader_.ReadAt(at_, out);
    at_ += out.size();
  }
  [[noreturn]] void Refuse(const char* what, const std::string& expected,
                           const std::string& found) const {
    throw Error(ErrorCode::kCorrupt, reader_.name(),
                fmt::format("it is no importance matrix (GGUF, or the older .dat): {}", what),
                expected, found);
  }

  const BlockReader& reader_;
  uint64_t at_ = 0;
};

bool IsGguf(const BlockReader& reader) {
  std::array<char, 4> magic{};
  if (reader.size_bytes() < magic.size()) return false;
  reader.ReadAt(0, std::as_writable_bytes(std::span(magic)));
  return std::string_view(magic.data(), magic.size()) == "GGUF";
}

}  // namespace

ImportanceMatrix ImportanceMatrix::Load(const std::string& path) {
  return Read(OpenFileReader(path));
}

ImportanceMatrix ImportanceMatrix::Read(std::unique_ptr<BlockReader> reader) {
  ImportanceMatrix matrix;
  matrix.path_ = reader->name();
  if (IsGguf(*reader)) {
    matrix.ReadGguf(std::move(reader));
  } else {
    matrix.ReadLegacy(*reader);
  }
  if (matrix.entries_.empty()) {
    throw Error(ErrorCode::kCorrupt, matrix.path_, "it holds the importance of no matrix");
  }
  return matrix;
}

void ImportanceMatrix::ReadGguf(std::unique_ptr<BlockReader> reader) {
  std::vector<std::unique_ptr<BlockReader>> parts;
  parts.push_back(std::move(reader));
  const GgufFile file = GgufFile::FromReaders(std::move(parts));
  const std::string* const type = file.metadata().FindString("general.type");
  if (type == nullptr || *type != "imatrix") {
    throw Error(ErrorCode::kCorrupt, path_, "general.type", "imatrix",
                type == nullptr ? "none" : Printable(*type));
  }
  for (const GgufTensor& squares : file.tensors()) {
    std::string name = squares.name;
    if (!name.ends_with(kSquares)) continue;
    name.resize(name.size() - kSquares.size());
    const GgufTensor& counts = file.GetTensor(name + std::string(kCounts));
    MatrixImportance importance;
    importance.columns = squares.ne[0];
    importance.values = ReadFloats(file, squares);
    const std::vector<float> tokens = ReadFloats(file, counts);
    if (tokens.size() * importance.columns != importance.values.size()) {
      throw Error(ErrorCode::kCorrupt, path_, "counts of " + Printable(name),
                  fmt::format("{}", importance.values.size() / importance.columns),
                  fmt::format("{}", tokens.size()));
    }
    Average(importance.values, tokens);
    Add(name, std::move(importance));
  }
}

void ImportanceMatrix::ReadLegacy(const BlockReader& reader) {
  LegacyCursor cursor(reader);
  const int32_t entries = cursor.Number("number of entries", 1, kMostEntries);
  for (int32_t i = 0; i < entries; ++i) {
    const std::string name = cursor.Name();
    const int32_t calls = cursor.Number("number of calls", 0, std::numeric_limits<int32_t>::max());
    MatrixImportance importance;
    importance.values = cursor.Values();
    for (float& value : importance.values) {
      value = calls > 0 ? value / static_cast<float>(calls) : value;
    }
    Add(name, std::move(importance));
  }
}

void ImportanceMatrix::Add(const std::string& name, MatrixImportance importance) {
  const auto is_bad = [](float value) { return !(std::isfinite(value) && value >= 0); };
  if (std::any_of(importance.values.begin(), importance.values.end(), is_bad)) {
    throw Error(ErrorCode::kCorrupt, path_,
                "importance of " + Printable(name) + " is no number, or below zero");
  }
  if (!entries_.emplace(name, std::move(importance)).second) {
    throw Error(ErrorCode::kCorrupt, path_, Printable(name) + " is there twice");
  }
}

uint64_t ImportanceMatrix::values_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, importance] : entries_) {
    bytes += importance.values.size() * sizeof(float);
  }
  return bytes;
}

const float* ImportanceMatrix::Find(const GgufFile& model, const GgufTensor& tensor) const {
  const auto found = entries_.find(tensor.name);
  if (found == entries_.end()) return nullptr;
  const MatrixImportance& importance = found->second;
  const uint64_t expected = tensor.ne[0] * tensor.ne[2];
  const bool fits = importance.values.size() == expected &&
                    (importance.columns == 0 || importance.columns == tensor.ne[0]);
  if (!fits) {
    throw Error(ErrorCode::kCorrupt, path_,
                fmt::format("values of {}, of which {} has {} columns in {} matrices",
                            Printable(tensor.name), model.path(), tensor.ne[0], tensor.ne[2]),
                std::to_string(expected), std::to_string(importance.values.size()));
  }
  return importance.values.data();
}

std::vector<std::string> ImportanceMatrix::Strangers(const GgufFile& model) const {
  std::vector<std::string> strangers;
  for (const auto& [name, importance] : entries_) {
    if (model.FindTensorOrNull(name) == nullptr) strangers.push_back(name);
  }
  if (strangers.size() == entries_.size()) {
    throw Error(ErrorCode::kInvalidArgument, path_,
                fmt::format("it is of another model: {} has no '{}', nor any other of its {} names",
                            model.path(), Printable(strangers.front()), strangers.size()));
  }
  return strangers;
}

void WriteImportance(const std::string& path, const std::vector<InputSums>& sums,
                     const ImportanceSource& source) {
  GgufMetadata metadata;
  metadata.SetString("general.type", "imatrix");
  metadata.SetStrings("imatrix.datasets", {source.text});
  metadata.SetUint32("imatrix.chunk_count", static_cast<uint32_t>(source.chunks));
  metadata.SetUint32("imatrix.chunk_size", static_cast<uint32_t>(source.chunk_tokens));
  std::vector<GgufTensorDecl> decls;
  for (const InputSums& matrix : sums) {
    const uint64_t experts = matrix.tokens.size();
    for (const std::string& name : matrix.names) {
      decls.push_back({name + std::string(kSquares), DType::kF32, {matrix.columns, experts}});
      decls.push_back({name + std::string(kCounts), DType::kF32, {1, experts}});
    }
  }
  GgufWriter writer(path, metadata, decls);
  for (const InputSums& matrix : sums) {
    const std::vector<float> squares(matrix.squares.begin(), matrix.squares.end());
    const std::vector<float> tokens(matrix.tokens.begin(), matrix.tokens.end());
    for (size_t i = 0; i < matrix.names.size(); ++i) {
      writer.Append(std::as_bytes(std::span(squares)));
      writer.Append(std::as_bytes(std::span(tokens)));
    }
  }
  writer.Finish();
}

}  // namespace hearth
