#include "format/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "base/error.h"

namespace hearth {
namespace {

using testing::HasSubstr;

class GgufWriterTest : public testing::Test {
 protected:
  GgufWriterTest()
      : folder_(std::filesystem::path(testing::TempDir()) /
                ("gguf_writer_test." + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~GgufWriterTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const char* name) const { return (folder_ / name).string(); }
  size_t FilesInFolder() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::filesystem::path folder_;
};

std::vector<std::byte> RandomBytes(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// One value of every type, arrays of every type, an array of arrays.
GgufMetadata EveryValue() {
  GgufMetadata m;
  m.Set("u8", {GgufType::kUint8, uint64_t{255}});
  m.Set("i8", {GgufType::kInt8, int64_t{-128}});
  m.Set("u16", {GgufType::kUint16, uint64_t{65535}});
  m.Set("i16", {GgufType::kInt16, int64_t{-32768}});
  m.SetUint32("u32", UINT32_MAX);
  m.SetInt32("i32", INT32_MIN);
  m.SetFloat32("f32", 0.1f);
  m.SetBool("yes", true);
  m.SetBool("no", false);
  m.SetString("text", std::string("nul\0 and \xc3\xa9", 11));
  m.SetString("empty", "");
  m.SetUint64("u64", UINT64_MAX);
  m.Set("i64", {GgufType::kInt64, INT64_MIN});
  m.Set("f64", {GgufType::kFloat64, 0.1});
  m.SetStrings("texts", {"a", "", "ccc"});
  m.SetInt32s("i32s", {1, -2, 3});
  m.SetFloat32s("f32s", {0.5f});
  const auto array = [&m](const char* key, GgufArray value) {
    m.Set(key, {GgufType::kArray, std::move(value)});
  };
  array("u8s", {GgufType::kUint8, std::vector<uint8_t>{1, 2}});
  array("bools", {GgufType::kBool, std::vector<uint8_t>{1, 0, 1}});
  array("i8s", {GgufType::kInt8, std::vector<int8_t>{-1}});
  array("u16s", {GgufType::kUint16, std::vector<uint16_t>{}});
  array("i16s", {GgufType::kInt16, std::vector<int16_t>{-5}});
  array("u32s", {GgufType::kUint32, std::vector<uint32_t>{9}});
  array("u64s", {GgufType::kUint64, std::vector<uint64_t>{UINT64_MAX}});
  array("i64s", {GgufType::kInt64, std::vector<int64_t>{-7}});
  array("f64s", {GgufType::kFloat64, std::vector<double>{0.25}});
  array("nested", {GgufType::kArray,
                   std::vector<GgufArray>{{GgufType::kString, std::vector<std::string>{"x"}},
                                          {GgufType::kArray, std::vector<GgufArray>{}}}});
  return m;
}

bool Same(const GgufArray& a, const GgufArray& b);

bool SameItems(const std::vector<GgufArray>& a, const std::vector<GgufArray>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), Same);
}

template <typename T>
bool SameItems(const std::vector<T>& a, const std::vector<T>& b) {
  return a == b;
}

bool Same(const GgufArray& a, const GgufArray& b) {
  if (a.element_type != b.element_type || a.items.index() != b.items.index()) return false;
  return std::visit(
      [&b](const auto& items) {
        return SameItems(items, std::get<std::decay_t<decltype(items)>>(b.items));
      },
      a.items);
}

bool Same(const GgufValue& a, const GgufValue& b) {
  if (a.type != b.type || a.value.index() != b.value.index()) return false;
  if (const auto* array = std::get_if<GgufArray>(&a.value)) {
    return Same(*array, std::get<GgufArray>(b.value));
  }
  return std::visit(
      [&b](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, GgufArray>) {
          return false;  // handled above
        } else {
          return value == std::get<T>(b.value);
        }
      },
      a.value);
}

TEST_F(GgufWriterTest, WritesEveryValueType) {
  const GgufMetadata metadata = EveryValue();
  const std::string path = Path("values.gguf");
  GgufWriter writer(path, metadata, {});
  writer.Finish();
  const GgufFile file = GgufFile::Open(path);
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.file_bytes(), writer.total_bytes());
  ASSERT_EQ(file.metadata().values().size(), metadata.values().size());
  for (const auto& [key, value] : metadata.values()) {
    const GgufValue* read = file.metadata().FindOrNull(key);
    ASSERT_NE(read, nullptr) << key;
    EXPECT_TRUE(Same(value, *read)) << key;
  }
}

TEST_F(GgufWriterTest, WritesTensorsInPieces) {
  for (const uint32_t alignment : {1u, 32u, 512u}) {
    GgufMetadata metadata;
    metadata.SetUint32("general.alignment", alignment);
    const std::vector<GgufTensorDecl> decls = {{"a", DType::kF32, {3}},
                                               {"b", DType::kQ4_0, {64, 5, 2}},
                                               {"c", DType::kQ6_K, {512, 40, 2, 4}},
                                               {"d", DType::kI8, {7, 1}}};
    const std::string path = Path("pieces.gguf");
    GgufWriter writer(path, metadata, decls);
    std::vector<std::vector<std::byte>> data;
    for (const GgufTensorDecl& decl : decls) {
      data.push_back(RandomBytes(writer.BytesLeftInTensor(), static_cast<uint32_t>(data.size())));
      // The first bytes one by one, then the rest, more than the writer's buffer for "c".
      const auto bytes = std::span<const std::byte>(data.back());
      for (size_t i = 0; i < 5; ++i) writer.Append(bytes.subspan(i, 1));
      EXPECT_EQ(writer.BytesLeftInTensor(), bytes.size() - 5) << decl.name;
      writer.Append(bytes.subspan(5));
    }
    EXPECT_EQ(writer.BytesLeftInTensor(), 0u);
    EXPECT_EQ(writer.written_bytes(), writer.total_bytes());
    writer.Finish();
    EXPECT_EQ(FilesInFolder(), 1u);

    const GgufFile file = GgufFile::Open(path);
    EXPECT_EQ(file.alignment(), alignment);
    EXPECT_EQ(file.file_bytes(), writer.total_bytes());
    ASSERT_EQ(file.tensors().size(), decls.size());
    for (size_t i = 0; i < decls.size(); ++i) {
      const GgufTensor& tensor = file.tensors()[i];
      EXPECT_EQ(tensor.name, decls[i].name);
      EXPECT_EQ(tensor.dtype, decls[i].dtype);
      EXPECT_EQ(tensor.num_dims, static_cast<int>(decls[i].ne.size()));
      EXPECT_EQ(tensor.offset % alignment, 0u);
      std::vector<std::byte> read(tensor.bytes);
      file.ReadTensor(tensor, 0, read);
      EXPECT_EQ(read, data[i]);
    }
  }
}

TEST_F(GgufWriterTest, LeavesNothingBehindUnlessFinished) {
  {
    GgufWriter writer(Path("a.gguf"), GgufMetadata(), {{"w", DType::kF32, {4}}});
    EXPECT_EQ(FilesInFolder(), 1u);
    EXPECT_FALSE(std::filesystem::exists(Path("a.gguf")));
    writer.Append(RandomBytes(8, 1));
    EXPECT_THROW(writer.Finish(), Error);
  }
  EXPECT_EQ(FilesInFolder(), 0u);
}

TEST_F(GgufWriterTest, KeepsTheOldFileUntilFinish) {
  std::ofstream(Path("a.gguf")) << "old";
  GgufWriter writer(Path("a.gguf"), GgufMetadata(), {{"w", DType::kF32, {4}}});
  writer.Append(RandomBytes(16, 1));
  EXPECT_EQ(std::filesystem::file_size(Path("a.gguf")), 3u);
  writer.Finish();
  EXPECT_EQ(std::filesystem::file_size(Path("a.gguf")), writer.total_bytes());
  writer.Finish();  // a second time does nothing
}

TEST_F(GgufWriterTest, RefusesBytesBeyondATensor) {
  GgufWriter writer(Path("a.gguf"), GgufMetadata(),
                    {{"a", DType::kF32, {4}}, {"b", DType::kF32, {4}}});
  EXPECT_THROW(writer.Append(RandomBytes(17, 1)), Error);
  writer.Append(RandomBytes(16, 1));
  writer.Append(RandomBytes(16, 1));
  EXPECT_NO_THROW(writer.Append({}));
  EXPECT_THROW(writer.Append(RandomBytes(1, 1)), Error);
}

TEST_F(GgufWriterTest, RefusesWhatAReaderWouldRefuse) {
  const auto message = [this](const GgufMetadata& metadata, std::vector<GgufTensorDecl> tensors) {
    try {
      GgufWriter(Path("bad.gguf"), metadata, std::move(tensors));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const GgufMetadata none;
  EXPECT_THAT(message(none, {{"w", DType::kQ4_0, {48}}}), HasSubstr("multiple of 32 for Q4_0"));
  EXPECT_THAT(message(none, {{"w", DType::kF32, {}}}), HasSubstr("1 to 4"));
  EXPECT_THAT(message(none, {{"w", DType::kF32, {1, 1, 1, 1, 1}}}), HasSubstr("1 to 4"));
  EXPECT_THAT(message(none, {{"w", DType::kF32, {4, 0}}}), HasSubstr("dimensions"));
  EXPECT_THAT(message(none, {{"w", DType::kF32, {1ull << 40, 1ull << 40}}}),
              HasSubstr("dimensions"));
  EXPECT_THAT(message(none, {{"w", DType::kF32, {1}}, {"w", DType::kF32, {1}}}),
              HasSubstr("tensor 'w'"));
  EXPECT_THAT(message(none, {{std::string(64, 'n'), DType::kF32, {1}}}), HasSubstr("1 to 63"));
  EXPECT_THAT(message(none, {{"", DType::kF32, {1}}}), HasSubstr("name length"));
  EXPECT_THAT(message(none, {{"v", DType::kF32, {1ull << 59}}, {"w", DType::kF32, {1ull << 59}}}),
              HasSubstr("accepted"));
  const auto with = [](const char* key, GgufValue value) {
    GgufMetadata metadata;
    metadata.Set(key, std::move(value));
    return metadata;
  };
  EXPECT_THAT(message(with("general.alignment", {GgufType::kUint32, uint64_t{48}}), {}),
              HasSubstr("power of two"));
  EXPECT_THAT(message(with("general.alignment", {GgufType::kUint64, uint64_t{32}}), {}),
              HasSubstr("uint32"));
  EXPECT_THAT(message(with("k", {GgufType::kUint8, uint64_t{256}}), {}), HasSubstr("fits uint8"));
  EXPECT_THAT(message(with("k", {GgufType::kInt8, int64_t{-129}}), {}), HasSubstr("fits int8"));
  EXPECT_THAT(message(with("k", {GgufType::kUint32, int64_t{1}}), {}), HasSubstr("key 'k'"));
  EXPECT_THAT(message(with("k", {GgufType::kString, true}), {}), HasSubstr("key 'k'"));
  EXPECT_THAT(
      message(with("k", {GgufType::kArray, GgufArray{GgufType::kInt8, std::vector<uint8_t>{}}}),
              {}),
      HasSubstr("int8"));
  EXPECT_THAT(message(with("", {GgufType::kBool, true}), {}), HasSubstr("1 to 65535"));
  EXPECT_EQ(FilesInFolder(), 0u);
}

TEST_F(GgufWriterTest, ValuesCanBeSetUntilTheEnd) {
  const std::vector<std::byte> data = RandomBytes(64, 1);
  GgufMetadata metadata = EveryValue();
  GgufWriter writer(Path("m"), metadata, {{"t", DType::kI8, {64}}});
  writer.Append(data);
  const auto set = [&](const char* key, GgufValue value) {
    writer.SetValue(key, value);
    metadata.Set(key, std::move(value));
  };
  set("u64", {GgufType::kUint64, uint64_t{12345}});
  set("texts",
      {GgufType::kArray, GgufArray{GgufType::kString, std::vector<std::string>{"", "bb", "cc"}}});
  set("empty", {GgufType::kString, std::string()});
  const std::vector<std::byte> header(writer.header().begin(), writer.header().end());
  writer.Finish();
  const GgufFile file = GgufFile::Open(Path("m"));
  EXPECT_EQ(file.metadata().GetUint("u64"), 12345u);
  EXPECT_EQ(file.metadata().FindStrings("texts")->at(1), "bb");
  EXPECT_EQ(file.metadata().values().size(), metadata.values().size());
  std::vector<std::byte> found(file.header_bytes(0));
  file.part(0).ReadAt(0, found);
  EXPECT_EQ(found, header);
  found.resize(64);
  file.ReadTensor(file.tensors()[0], 0, found);
  EXPECT_EQ(found, data);
}

TEST_F(GgufWriterTest, ValuesKeepTheirTypeAndLength) {
  GgufWriter writer(Path("m"), EveryValue(), {});
  const auto message = [&](const char* key, const GgufValue& value) {
    try {
      writer.SetValue(key, value);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message("missing", {GgufType::kBool, true}), HasSubstr("'missing'"));
  EXPECT_THAT(message("u64", {GgufType::kInt64, int64_t{1}}), HasSubstr("'u64'"));
  EXPECT_THAT(message("u64", {GgufType::kUint32, uint64_t{1}}), HasSubstr("'u64'"));
  EXPECT_THAT(message("text", {GgufType::kString, std::string("short")}), HasSubstr("'text'"));
  // As many bytes, but other elements.
  const GgufArray texts{GgufType::kString, std::vector<std::string>{"aaaa", "cccccccc"}};
  EXPECT_THAT(message("texts", {GgufType::kArray, texts}), HasSubstr("'texts'"));
}

TEST_F(GgufWriterTest, RefusesPathsItCannotReplace) {
  const auto message = [](const std::string& path) {
    try {
      GgufWriter(path, GgufMetadata(), {});
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + " " + error.what();
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message(folder_.string()), HasSubstr("io"));
  EXPECT_THAT(message(folder_.string()), HasSubstr("a directory"));
  EXPECT_THAT(message("/dev/full"), HasSubstr("a device"));
  EXPECT_THAT(message(Path("no/such/folder.gguf")), HasSubstr("cannot create"));
}

}  // namespace
}  // namespace hearth
