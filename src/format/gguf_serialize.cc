#include "format/gguf_serialize.h"

#include <fmt/format.h>

#include <cstring>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/rounding.h"
#include "format/gguf_parse.h"

namespace hearth {
namespace {

constexpr uint32_t kMagicNumber = 0x46554747;  // "GGUF" in the order of the file
constexpr uint32_t kVersion = 3;
// Other readers keep names in 64 bytes, the terminating zero included.
constexpr size_t kMaxWrittenNameBytes = 63;

class HeaderBytes {
 public:
  explicit HeaderBytes(const std::string& path) : path_(path) {}

  std::vector<std::byte> Take() { return std::move(bytes_); }
  size_t size() const { return bytes_.size(); }
  void PadTo(uint64_t size) { bytes_.resize(static_cast<size_t>(size)); }

  template <typename T>
  void Put(T value) {
    PutBytes(&value, sizeof(value));
  }
  void PutString(std::string_view text) {
    Put<uint64_t>(text.size());
    PutBytes(text.data(), text.size());
  }
  void PutValue(std::string_view key, const GgufValue& value);

 private:
  void PutBytes(const void* data, size_t count) {
    if (count == 0) return;
    const size_t at = bytes_.size();
    bytes_.resize(at + count);
    std::memcpy(bytes_.data() + at, data, count);
  }
  // A number of type Stored, from the wide type that GgufValue keeps it in.
  template <typename Stored, typename Wide>
  void PutNumber(std::string_view key, const GgufValue& value) {
    const Wide* wide = std::get_if<Wide>(&value.value);
    if (wide == nullptr) FailType(key, value.type);
    const auto stored = static_cast<Stored>(*wide);
    if constexpr (std::is_integral_v<Stored>) {
      if (static_cast<Wide>(stored) != *wide) {
        throw Error(ErrorCode::kInvalidArgument, path_, fmt::format("key '{}'", Printable(key)),
                    fmt::format("a value that fits {}", GgufTypeName(value.type)),
                    fmt::format("{}", *wide));
      }
    }
    Put(stored);
  }
  void PutArray(std::string_view key, const GgufArray& array, int depth);
  [[noreturn]] void FailType(std::string_view key, GgufType type) const {
    throw Error(ErrorCode::kInvalidArgument, path_, fmt::format("key '{}'", Printable(key)),
                fmt::format("a value of the type it names, {}", GgufTypeName(type)),
                "one of another type");
  }

  const std::string& path_;
  std::vector<std::byte> bytes_;
};

// The variant alternative that holds arrays of `type`.
size_t ItemsIndexOf(GgufType type) {
  using Items = decltype(GgufArray::items);
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kBool:
      return Items(std::vector<uint8_t>()).index();
    case GgufType::kInt8:
      return Items(std::vector<int8_t>()).index();
    case GgufType::kUint16:
      return Items(std::vector<uint16_t>()).index();
    case GgufType::kInt16:
      return Items(std::vector<int16_t>()).index();
    case GgufType::kUint32:
      return Items(std::vector<uint32_t>()).index();
    case GgufType::kInt32:
      return Items(std::vector<int32_t>()).index();
    case GgufType::kFloat32:
      return Items(std::vector<float>()).index();
    case GgufType::kString:
      return Items(std::vector<std::string>()).index();
    case GgufType::kArray:
      return Items(std::vector<GgufArray>()).index();
    case GgufType::kUint64:
      return Items(std::vector<uint64_t>()).index();
    case GgufType::kInt64:
      return Items(std::vector<int64_t>()).index();
    case GgufType::kFloat64:
      return Items(std::vector<double>()).index();
  }
  return std::variant_npos;
}

void HeaderBytes::PutArray(std::string_view key, const GgufArray& array, int depth) {
  if (array.items.index() != ItemsIndexOf(array.element_type)) FailType(key, array.element_type);
  if (depth > kGgufMaxArrayDepth) {
    throw Error(ErrorCode::kInvalidArgument, path_, fmt::format("key '{}'", Printable(key)),
                fmt::format("arrays nested at most {} levels", kGgufMaxArrayDepth), "more");
  }
  Put(static_cast<uint32_t>(array.element_type));
  std::visit(
      [&](const auto& items) {
        using Item = typename std::decay_t<decltype(items)>::value_type;
        Put<uint64_t>(items.size());
        if constexpr (std::is_same_v<Item, std::string>) {
          for (const std::string& item : items) PutString(item);
        } else if constexpr (std::is_same_v<Item, GgufArray>) {
          for (const GgufArray& item : items) PutArray(key, item, depth + 1);
        } else {
          PutBytes(items.data(), items.size() * sizeof(Item));
        }
      },
      array.items);
}

void HeaderBytes::PutValue(std::string_view key, const GgufValue& value) {
  Put(static_cast<uint32_t>(value.type));
  switch (value.type) {
    case GgufType::kUint8:
      return PutNumber<uint8_t, uint64_t>(key, value);
    case GgufType::kUint16:
      return PutNumber<uint16_t, uint64_t>(key, value);
    case GgufType::kUint32:
      return PutNumber<uint32_t, uint64_t>(key, value);
    case GgufType::kUint64:
      return PutNumber<uint64_t, uint64_t>(key, value);
    case GgufType::kInt8:
      return PutNumber<int8_t, int64_t>(key, value);
    case GgufType::kInt16:
      return PutNumber<int16_t, int64_t>(key, value);
    case GgufType::kInt32:
      return PutNumber<int32_t, int64_t>(key, value);
    case GgufType::kInt64:
      return PutNumber<int64_t, int64_t>(key, value);
    case GgufType::kFloat32:
      return PutNumber<float, double>(key, value);
    case GgufType::kFloat64:
      return PutNumber<double, double>(key, value);
    case GgufType::kBool:
      return PutNumber<uint8_t, bool>(key, value);
    case GgufType::kString:
      if (const auto* text = std::get_if<std::string>(&value.value)) return PutString(*text);
      break;
    case GgufType::kArray:
      if (const auto* array = std::get_if<GgufArray>(&value.value)) return PutArray(key, *array, 1);
      break;
  }
  FailType(key, value.type);
}

// Bytes of a tensor; throws where its declaration makes no sense.
uint64_t CheckedBytes(const std::string& path, const GgufTensorDecl& tensor) {
  const auto fail = [&](const char* field, const std::string& expected, const std::string& found) {
    throw Error(ErrorCode::kInvalidArgument, path,
                fmt::format("tensor '{}': {}", Printable(tensor.name), field), expected, found);
  };
  if (tensor.name.empty() || tensor.name.size() > kMaxWrittenNameBytes) {
    fail("name length", fmt::format("1 to {}", kMaxWrittenNameBytes),
         fmt::format("{}", tensor.name.size()));
  }
  if (tensor.ne.empty() || tensor.ne.size() > kGgufMaxDims) {
    fail("number of dimensions", fmt::format("1 to {}", kGgufMaxDims),
         fmt::format("{}", tensor.ne.size()));
  }
  const DTypeInfo& info = InfoOf(tensor.dtype);
  if (tensor.ne[0] % info.block_size != 0) {
    fail("first dimension", fmt::format("a multiple of {} for {}", info.block_size, info.name),
         fmt::format("{}", tensor.ne[0]));
  }
  uint64_t weights = 1;
  for (const uint64_t n : tensor.ne) {
    if (n == 0 || n > kMaxGgufBytes / info.block_bytes / weights) {
      fail("dimensions", "at least 1 each and less than 2^62 bytes", fmt::format("{}", n));
    }
    weights *= n;
  }
  return weights / info.block_size * info.block_bytes;
}

uint64_t CheckedAlignment(const std::string& path, const GgufMetadata& metadata) {
  const GgufValue* value = metadata.FindOrNull("general.alignment");
  if (value == nullptr) return kGgufDefaultAlignment;
  const auto* number = std::get_if<uint64_t>(&value->value);
  // The specification wants a uint32 here, and other readers insist on it.
  if (value->type == GgufType::kUint32 && number != nullptr && IsGgufAlignment(*number)) {
    return *number;
  }
  throw Error(ErrorCode::kInvalidArgument, path, "key 'general.alignment'",
              fmt::format("a power of two up to {}, as uint32", kGgufMaxAlignment),
              number == nullptr ? GgufTypeName(value->type) : fmt::format("{}", *number));
}

void PutMetadata(const std::string& path, const GgufMetadata& metadata, HeaderBytes& header,
                 GgufLayout& layout) {
  for (const auto& [key, value] : metadata.values()) {
    if (key.empty() || key.size() > kGgufMaxKeyBytes) {
      throw Error(ErrorCode::kInvalidArgument, path, fmt::format("key '{}'", Printable(key)),
                  fmt::format("1 to {} bytes", kGgufMaxKeyBytes), fmt::format("{}", key.size()));
    }
    header.PutString(key);
    const size_t begin = header.size();
    header.PutValue(key, value);
    layout.values[key] = {begin, header.size()};
  }
}

}  // namespace

GgufLayout PlanGguf(const std::string& path, const GgufMetadata& metadata,
                    const std::vector<GgufTensorDecl>& tensors) {
  const uint64_t alignment = CheckedAlignment(path, metadata);
  HeaderBytes header(path);
  header.Put(kMagicNumber);
  header.Put(kVersion);
  header.Put<uint64_t>(tensors.size());
  header.Put<uint64_t>(metadata.values().size());
  GgufLayout layout;
  PutMetadata(path, metadata, header, layout);

  std::set<std::string_view> names;
  uint64_t data_bytes = 0;  // of the data section so far, a multiple of the alignment
  for (const GgufTensorDecl& tensor : tensors) {
    layout.bytes.push_back(CheckedBytes(path, tensor));
    if (!names.insert(tensor.name).second) {
      throw Error(ErrorCode::kInvalidArgument, path,
                  fmt::format("tensor '{}'", Printable(tensor.name)), "a name of its own",
                  "one that is taken");
    }
    if (layout.bytes.back() > kMaxGgufBytes - data_bytes) {
      throw Error(ErrorCode::kInvalidArgument, path, "size of all tensors", "less than 2^62 bytes",
                  "more");
    }
    header.PutString(tensor.name);
    header.Put(static_cast<uint32_t>(tensor.ne.size()));
    for (const uint64_t n : tensor.ne) header.Put(n);
    header.Put(InfoOf(tensor.dtype).gguf_id);
    header.Put(data_bytes);
    layout.offsets.push_back(data_bytes);
    data_bytes += RoundUp<uint64_t>(layout.bytes.back(), alignment);
  }

  const uint64_t data_begin = RoundUp<uint64_t>(header.size(), alignment);
  header.PadTo(data_begin);
  layout.header = header.Take();
  for (uint64_t& offset : layout.offsets) offset += data_begin;
  layout.total_bytes = data_begin + data_bytes;
  return layout;
}

std::vector<std::byte> SerializeGgufValue(const std::string& path, std::string_view key,
                                          const GgufValue& value) {
  HeaderBytes bytes(path);
  bytes.PutValue(key, value);
  return bytes.Take();
}

}  // namespace hearth
