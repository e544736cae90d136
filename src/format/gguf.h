// GGUF v2 and v3 model files: metadata, tensor directory, tensor bytes; one file or a split set.
//
// Follows the public GGUF specification. Every file is treated as hostile: sizes are checked
// before they are multiplied, offsets before they are read, and each refusal is one sentence that
// names file, field, expected and found.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "storage/block_reader.h"
#include "tensor/dtype.h"

namespace hearth {

// Value types by their number in the file.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
const char* GgufTypeName(GgufType type);

struct GgufValue;

// An array keeps its elements in the width of the file (a vocabulary has 10^5 of them).
struct GgufArray {
  GgufType element_type = GgufType::kUint8;
  std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>,
               std::vector<int16_t>, std::vector<uint32_t>, std::vector<int32_t>,
               std::vector<float>, std::vector<std::string>, std::vector<GgufArray>,
               std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>>
      items;  // bool is stored as uint8_t (0 or 1)
};

struct GgufValue {
  GgufType type = GgufType::kUint8;
  std::variant<uint64_t, int64_t, double, bool, std::string, GgufArray> value;
};

// Key-value pairs of a model file. Getters convert between integer widths where the value fits
// and throw Error(kCorrupt), naming file and key, where it does not or the type is another.
class GgufMetadata {
 public:
  GgufMetadata() = default;
  explicit GgufMetadata(std::string file_name) : file_name_(std::move(file_name)) {}

  const std::string& file_name() const { return file_name_; }
  bool Has(std::string_view key) const;
  const GgufValue* FindOrNull(std::string_view key) const;
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }

  std::optional<uint64_t> FindUint(std::string_view key) const;
  std::optional<int64_t> FindInt(std::string_view key) const;
  std::optional<double> FindFloat(std::string_view key) const;  // floats and integers
  std::optional<bool> FindBool(std::string_view key) const;
  const std::string* FindString(std::string_view key) const;
  const std::vector<std::string>* FindStrings(std::string_view key) const;
  std::optional<std::vector<int64_t>> FindInts(std::string_view key) const;
  std::optional<std::vector<float>> FindFloats(std::string_view key) const;

  // The same, but a missing key throws Error(kNotFound).
  uint64_t GetUint(std::string_view key) const;
  double GetFloat(std::string_view key) const;
  const std::string& GetString(std::string_view key) const;

  // For writers and tests. Replaces.
  void SetUint32(std::string_view key, uint32_t value);
  void SetUint64(std::string_view key, uint64_t value);
  void SetInt32(std::string_view key, int32_t value);
  void SetFloat32(std::string_view key, float value);
  void SetBool(std::string_view key, bool value);
  void SetString(std::string_view key, std::string value);
  void SetStrings(std::string_view key, std::vector<std::string> values);
  void SetInt32s(std::string_view key, std::vector<int32_t> values);
  void SetFloat32s(std::string_view key, std::vector<float> values);
  void Set(std::string_view key, GgufValue value);

 private:
  std::string file_name_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

inline constexpr int kGgufMaxDims = 4;

// One tensor of the directory.
struct GgufTensor {
  std::string name;
  DType dtype = DType::kF32;
  int num_dims = 1;
  std::array<uint64_t, kGgufMaxDims> ne = {1, 1, 1, 1};  // ne[0] is contiguous
  uint32_t file_index = 0;                               // of a split set
  uint64_t offset = 0;                                   // from the start of that file
  uint64_t bytes = 0;

  uint64_t num_weights() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
};

// A tensor of a type that Hearth does not read.
struct GgufForeignTensor {
  std::string name;
  std::array<uint64_t, kGgufMaxDims> ne = {1, 1, 1, 1};
  uint32_t type = 0;  // its number in the file
};

// The type as a message shows it, and what to do about it: "type 31 (Q4_0_4_4, which ggml has
// withdrawn: get the model in Q4_0)".
std::string DescribeForeignType(uint32_t type);
// Its name ("Q4_0_4_4"), or "type 1000" where nobody knows one.
std::string ForeignTypeName(uint32_t type);

// What becomes of foreign tensors when a file is opened: it is refused, or they are listed, for
// commands that only show what is there.
enum class ForeignTensors : uint8_t { kRefuse, kList };

struct GgufPart;  // one parsed file, see gguf_parse.h

// An opened model file, or a split set opened through any of its files
// ("name-00001-of-00003.gguf"). Immutable; reading is thread-safe.
class GgufFile {
 public:
  // Reads and checks the header and directory of every part. Throws hearth::Error; for what is no
  // model file (a folder, part of a cut file, another format), it says what to do.
  static GgufFile Open(const std::string& path, ForeignTensors foreign = ForeignTensors::kRefuse);
  // From readers, one per part, the first part first (tests, fuzzing).
  static GgufFile FromReaders(std::vector<std::unique_ptr<BlockReader>> parts,
                              ForeignTensors foreign = ForeignTensors::kRefuse);

  const std::string& path() const { return path_; }  // of the first part
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  const GgufMetadata& metadata() const { return metadata_; }           // of the first part
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in file order
  // Tensors that no function here can read; `tensors()` and the functions below are without them.
  const std::vector<GgufForeignTensor>& foreign_tensors() const { return foreign_; }
  // Throws Error(kUnsupported) about the first of them, where there are any.
  void RefuseForeignTensors() const;
  // The shape of a tensor, foreign or not; nothing where it is missing.
  std::optional<std::array<uint64_t, kGgufMaxDims>> FindShape(std::string_view name) const;
  const GgufTensor* FindTensorOrNull(std::string_view name) const;
  const GgufTensor& GetTensor(std::string_view name) const;  // Error(kNotFound) where missing
  size_t num_parts() const { return parts_.size(); }
  const BlockReader& part(size_t index) const { return *parts_[index]; }
  uint64_t file_bytes() const;  // all parts
  // Takes `key` for said, which the file does not say, for what a user knows of it: metadata() has
  // it, and ModelHash counts it. Before anyone reads the file; Error(kInternal) where it has `key`.
  void Assume(std::string_view key, GgufValue value);
  const GgufMetadata& assumed() const { return assumed_; }
  // Where a part's header ends: its tensor data begins there, or the part has none.
  uint64_t header_bytes(size_t part) const { return header_bytes_[part]; }

  // Reads out.size() bytes from `begin` bytes into the tensor. The range must lie inside it.
  void ReadTensor(const GgufTensor& tensor, uint64_t begin, std::span<std::byte> out) const;

  // Lets the system fetch part of a tensor ahead; see BlockReader::WillRead.
  void WillRead(const GgufTensor& tensor, uint64_t begin, uint64_t bytes) const noexcept;

  // Lets the page cache forget part of a tensor; see BlockReader::DropCached.
  void DropCached(const GgufTensor& tensor, uint64_t begin, uint64_t bytes) const noexcept;
  // And all of the file.
  void DropCached() const noexcept;

 private:
  // An entry of index_ that is no place in tensors_.
  static constexpr size_t kIsForeign = static_cast<size_t>(-1);

  static GgufFile OpenParts(const std::string& path, ForeignTensors foreign);
  void AddTensors(GgufPart& part, uint32_t file_index);
  // Joins parsed parts, in order, after checking that they belong together.
  static GgufFile Assemble(std::vector<std::unique_ptr<BlockReader>> readers,
                           std::vector<GgufPart> parts);

  std::string path_;
  uint32_t version_ = 3;
  uint64_t alignment_ = 32;
  GgufMetadata metadata_;
  GgufMetadata assumed_;
  std::vector<GgufTensor> tensors_;
  std::vector<GgufForeignTensor> foreign_;
  std::map<std::string, size_t, std::less<>> index_;
  std::vector<std::unique_ptr<BlockReader>> parts_;
  std::vector<uint64_t> header_bytes_;
};

}  // namespace hearth
