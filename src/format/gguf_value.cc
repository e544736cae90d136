// Reading one metadata value.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "format/gguf_parse.h"

namespace hearth {
namespace {

// Counts of nested arrays are trusted no further than this, as each level has one of its own.
constexpr uint64_t kMaxReserved = uint64_t{1} << 16;

// Least bytes of an array item in the file.
constexpr uint64_t kStringLengthBytes = 8;
constexpr uint64_t kArrayHeaderBytes = 12;

GgufType ReadType(HeaderCursor& cursor, const char* field) {
  const auto number = cursor.Read<uint32_t>(field);
  if (number > static_cast<uint32_t>(GgufType::kFloat64)) {
    cursor.Fail(ErrorCode::kCorrupt, field, "a value type of 0 to 12", fmt::format("{}", number));
  }
  return static_cast<GgufType>(number);
}

template <typename T>
std::vector<T> ReadNumbers(HeaderCursor& cursor) {
  const uint64_t count = cursor.ReadCount("array length", sizeof(T));
  std::vector<T> items(static_cast<size_t>(count));
  cursor.Read("array items", std::as_writable_bytes(std::span(items)));
  return items;
}

// Some writers leave other bytes than 1 for true.
std::vector<uint8_t> ReadBools(HeaderCursor& cursor) {
  std::vector<uint8_t> items = ReadNumbers<uint8_t>(cursor);
  for (uint8_t& byte : items) byte = byte != 0 ? 1 : 0;
  return items;
}

std::vector<std::string> ReadStrings(HeaderCursor& cursor) {
  const uint64_t count = cursor.ReadCount("array length", kStringLengthBytes);
  std::vector<std::string> items;
  items.reserve(static_cast<size_t>(count));  // at most four times the bytes left in the header
  for (uint64_t i = 0; i < count; ++i) items.push_back(cursor.ReadString("string length"));
  return items;
}

GgufArray ReadArray(HeaderCursor& cursor, int depth);

std::vector<GgufArray> ReadArrays(HeaderCursor& cursor, int depth) {
  const uint64_t count = cursor.ReadCount("array length", kArrayHeaderBytes);
  std::vector<GgufArray> items;
  items.reserve(static_cast<size_t>(std::min(count, kMaxReserved)));
  for (uint64_t i = 0; i < count; ++i) items.push_back(ReadArray(cursor, depth + 1));
  return items;
}

GgufArray ReadArray(HeaderCursor& cursor, int depth) {
  if (depth > kGgufMaxArrayDepth) {
    cursor.Fail(ErrorCode::kUnsupported, "array nesting",
                fmt::format("at most {} levels", kGgufMaxArrayDepth), "more");
  }
  GgufArray array;
  array.element_type = ReadType(cursor, "array item type");
  switch (array.element_type) {
    case GgufType::kBool:
      array.items = ReadBools(cursor);
      break;
    case GgufType::kUint8:
      array.items = ReadNumbers<uint8_t>(cursor);
      break;
    case GgufType::kInt8:
      array.items = ReadNumbers<int8_t>(cursor);
      break;
    case GgufType::kUint16:
      array.items = ReadNumbers<uint16_t>(cursor);
      break;
    case GgufType::kInt16:
      array.items = ReadNumbers<int16_t>(cursor);
      break;
    case GgufType::kUint32:
      array.items = ReadNumbers<uint32_t>(cursor);
      break;
    case GgufType::kInt32:
      array.items = ReadNumbers<int32_t>(cursor);
      break;
    case GgufType::kFloat32:
      array.items = ReadNumbers<float>(cursor);
      break;
    case GgufType::kUint64:
      array.items = ReadNumbers<uint64_t>(cursor);
      break;
    case GgufType::kInt64:
      array.items = ReadNumbers<int64_t>(cursor);
      break;
    case GgufType::kFloat64:
      array.items = ReadNumbers<double>(cursor);
      break;
    case GgufType::kString:
      array.items = ReadStrings(cursor);
      break;
    case GgufType::kArray:
      array.items = ReadArrays(cursor, depth);
      break;
  }
  return array;
}

}  // namespace

GgufValue ReadGgufValue(HeaderCursor& cursor) {
  GgufValue value;
  value.type = ReadType(cursor, "value type");
  switch (value.type) {
    case GgufType::kUint8:
      value.value = uint64_t{cursor.Read<uint8_t>("value")};
      break;
    case GgufType::kUint16:
      value.value = uint64_t{cursor.Read<uint16_t>("value")};
      break;
    case GgufType::kUint32:
      value.value = uint64_t{cursor.Read<uint32_t>("value")};
      break;
    case GgufType::kUint64:
      value.value = cursor.Read<uint64_t>("value");
      break;
    case GgufType::kInt8:
      value.value = int64_t{cursor.Read<int8_t>("value")};
      break;
    case GgufType::kInt16:
      value.value = int64_t{cursor.Read<int16_t>("value")};
      break;
    case GgufType::kInt32:
      value.value = int64_t{cursor.Read<int32_t>("value")};
      break;
    case GgufType::kInt64:
      value.value = cursor.Read<int64_t>("value");
      break;
    case GgufType::kFloat32:
      value.value = double{cursor.Read<float>("value")};
      break;
    case GgufType::kFloat64:
      value.value = cursor.Read<double>("value");
      break;
    case GgufType::kBool:
      value.value = cursor.Read<uint8_t>("value") != 0;
      break;
    case GgufType::kString:
      value.value = cursor.ReadString("string length");
      break;
    case GgufType::kArray:
      value.value = ReadArray(cursor, 1);
      break;
  }
  return value;
}

}  // namespace hearth
