#include "format/gguf_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "tensor/dtype.h"

namespace hearth {
namespace {

static_assert(std::endian::native == std::endian::little, "fields are read as they lie");

// Least bytes in the file: of a key-value pair (length, one character, type, one byte) and of a
// tensor (length, one character, dimensions, one of them, type, offset).
constexpr uint64_t kMinPairBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

uint64_t ReadEntryCount(HeaderCursor& cursor, const char* field, uint64_t min_entry_bytes) {
  const uint64_t count = cursor.ReadCount(field, min_entry_bytes);
  if (count > kGgufMaxEntries) {
    cursor.Fail(ErrorCode::kUnsupported, field, fmt::format("at most {}", kGgufMaxEntries),
                fmt::format("{}", count));
  }
  return count;
}

std::string ReadName(HeaderCursor& cursor, const char* field, uint64_t max_bytes) {
  std::string name = cursor.ReadString(field);
  if (name.empty() || name.size() > max_bytes) {
    cursor.Fail(ErrorCode::kCorrupt, field, fmt::format("1 to {} bytes", max_bytes),
                fmt::format("{}", name.size()));
  }
  return name;
}

void ReadMetadata(HeaderCursor& cursor, uint64_t count, GgufMetadata& metadata) {
  for (uint64_t i = 0; i < count; ++i) {
    cursor.SetContext(fmt::format("metadata pair {} of {}", i + 1, count));
    const std::string key = ReadName(cursor, "key length", kGgufMaxKeyBytes);
    cursor.SetContext(fmt::format("key '{}'", Printable(key)));
    if (metadata.Has(key)) {
      cursor.Fail(ErrorCode::kCorrupt, "name", "one of its own", "one that an earlier key has");
    }
    metadata.Set(key, ReadGgufValue(cursor));
  }
}

uint64_t AlignmentOf(const GgufMetadata& metadata) {
  const uint64_t alignment = metadata.FindUint("general.alignment").value_or(kGgufDefaultAlignment);
  if (!IsGgufAlignment(alignment)) {
    throw Error(ErrorCode::kCorrupt, metadata.file_name(), "key 'general.alignment'",
                fmt::format("a power of two up to {}", kGgufMaxAlignment),
                fmt::format("{}", alignment));
  }
  return alignment;
}

// Fills tensor.bytes from its type and shape.
void SizeTensor(const HeaderCursor& cursor, GgufTensor& tensor) {
  const DTypeInfo& info = InfoOf(tensor.dtype);
  uint64_t weights = 1;
  for (const uint64_t n : tensor.ne) {
    if (n == 0) cursor.Fail(ErrorCode::kCorrupt, "dimensions", "at least 1 each", "0");
    if (n > kMaxGgufBytes / weights) {
      cursor.Fail(
          ErrorCode::kCorrupt, "dimensions", "a product below 2^62",
          fmt::format("{} x {} x {} x {}", tensor.ne[0], tensor.ne[1], tensor.ne[2], tensor.ne[3]));
    }
    weights *= n;
  }
  if (tensor.ne[0] % info.block_size != 0) {
    cursor.Fail(ErrorCode::kCorrupt, "first dimension",
                fmt::format("a multiple of {} for {}", info.block_size, info.name),
                fmt::format("{}", tensor.ne[0]));
  }
  const uint64_t blocks = weights / info.block_size;
  if (blocks > kMaxGgufBytes / info.block_bytes) {
    cursor.Fail(ErrorCode::kCorrupt, "dimensions", "less than 2^62 bytes",
                fmt::format("{} blocks of {} bytes", blocks, info.block_bytes));
  }
  tensor.bytes = blocks * info.block_bytes;
}

// One entry of the directory, into `part`.
void ReadTensorInfo(HeaderCursor& cursor, ForeignTensors foreign, GgufPart& part) {
  GgufTensor tensor;
  tensor.name = ReadName(cursor, "name length", kGgufMaxTensorNameBytes);
  cursor.SetContext(fmt::format("tensor '{}'", Printable(tensor.name)));
  const auto num_dims = cursor.Read<uint32_t>("number of dimensions");
  if (num_dims < 1 || num_dims > kGgufMaxDims) {
    cursor.Fail(ErrorCode::kCorrupt, "number of dimensions", fmt::format("1 to {}", kGgufMaxDims),
                fmt::format("{}", num_dims));
  }
  tensor.num_dims = static_cast<int>(num_dims);
  for (uint32_t i = 0; i < num_dims; ++i) tensor.ne[i] = cursor.Read<uint64_t>("dimensions");
  const auto number = cursor.Read<uint32_t>("type");
  const std::optional<DType> dtype = DTypeFromGguf(number);
  if (!dtype && foreign == ForeignTensors::kRefuse) {
    cursor.Fail(ErrorCode::kUnsupported, "type", "a tensor type that Hearth reads",
                DescribeForeignType(number));
  }
  tensor.offset = cursor.Read<uint64_t>("offset");
  if (!dtype) {
    part.foreign.push_back({std::move(tensor.name), tensor.ne, number});
    return;
  }
  tensor.dtype = *dtype;
  SizeTensor(cursor, tensor);
  part.tensors.push_back(std::move(tensor));
}

void ReadDirectory(HeaderCursor& cursor, uint64_t count, ForeignTensors foreign, GgufPart& part) {
  part.tensors.reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) {
    cursor.SetContext(fmt::format("tensor {} of {}", i + 1, count));
    ReadTensorInfo(cursor, foreign, part);
  }
}

}  // namespace

bool IsGgufAlignment(uint64_t alignment) {
  return std::has_single_bit(alignment) && alignment <= kGgufMaxAlignment;
}

void PlaceGgufTensors(const BlockReader& reader, uint64_t data_begin, uint64_t alignment,
                      std::vector<GgufTensor>& tensors) {
  const uint64_t size = reader.size_bytes();
  const auto fail = [&](const GgufTensor& tensor, const char* field, const std::string& expected,
                        const std::string& found) {
    throw Error(ErrorCode::kCorrupt, reader.name(),
                fmt::format("tensor '{}': {}", Printable(tensor.name), field), expected, found);
  };
  for (GgufTensor& tensor : tensors) {
    if (tensor.offset % alignment != 0) {
      fail(tensor, "offset", fmt::format("a multiple of the alignment {}", alignment),
           fmt::format("{}", tensor.offset));
    }
    if (data_begin > size || tensor.offset > size - data_begin ||
        tensor.bytes > size - data_begin - tensor.offset) {
      fail(tensor, "extent", fmt::format("inside the file of {} bytes", size),
           fmt::format("{} bytes at {} + {} (an unfinished download?)", tensor.bytes, data_begin,
                       tensor.offset));
    }
    tensor.offset += data_begin;
  }

  std::vector<const GgufTensor*> by_offset;
  for (const GgufTensor& tensor : tensors) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const GgufTensor& before = *by_offset[i - 1];
    const uint64_t end = before.offset + before.bytes;
    if (by_offset[i]->offset < end) {
      fail(*by_offset[i], "offset",
           fmt::format("{} or more, after tensor '{}'", end, Printable(before.name)),
           fmt::format("{}", by_offset[i]->offset));
    }
  }
}

GgufPart ParseGgufPart(const BlockReader& reader, ForeignTensors foreign) {
  HeaderCursor cursor(reader, kGgufMaxHeaderBytes);
  GgufPart part;
  part.metadata = GgufMetadata(reader.name());
  part.version = ReadGgufVersion(reader, cursor);
  const uint64_t num_tensors = ReadEntryCount(cursor, "tensor count", kMinTensorBytes);
  const uint64_t num_pairs = ReadEntryCount(cursor, "metadata count", kMinPairBytes);
  ReadMetadata(cursor, num_pairs, part.metadata);
  part.alignment = AlignmentOf(part.metadata);
  ReadDirectory(cursor, num_tensors, foreign, part);
  part.data_begin = (cursor.position() + part.alignment - 1) / part.alignment * part.alignment;
  PlaceGgufTensors(reader, part.data_begin, part.alignment, part.tensors);
  return part;
}

uint64_t FindGgufValueEnd(const BlockReader& reader, std::string_view key) {
  HeaderCursor cursor(reader, kGgufMaxHeaderBytes);
  ReadGgufVersion(reader, cursor);
  ReadEntryCount(cursor, "tensor count", kMinTensorBytes);
  const uint64_t num_pairs = ReadEntryCount(cursor, "metadata count", kMinPairBytes);
  for (uint64_t i = 0; i < num_pairs; ++i) {
    const std::string name = ReadName(cursor, "key length", kGgufMaxKeyBytes);
    ReadGgufValue(cursor);
    if (name == key) return cursor.position();
  }
  throw Error(ErrorCode::kNotFound, reader.name(),
              fmt::format("key '{}' is missing", Printable(key)));
}

}  // namespace hearth
