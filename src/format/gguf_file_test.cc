// Files on disk and split sets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "format/gguf.h"
#include "format/test_gguf_bytes.h"

namespace hearth {
namespace {

using testing::HasSubstr;
using Bytes = GgufTestBytes;

class GgufFileTest : public testing::Test {
 protected:
  GgufFileTest()
      : folder_(std::filesystem::path(testing::TempDir()) /
                ("gguf_file_test." + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~GgufFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const Bytes& bytes) {
    const std::string path = (folder_ / name).string();
    std::ofstream out(path, std::ios::binary);
    for (const std::byte b : bytes.bytes()) out.put(static_cast<char>(b));
    return path;
  }

  // Part `no` of `count` with one tensor of 8 floats that all equal `no`.
  static Bytes Part(uint16_t no, uint16_t count, const std::string& tensor) {
    Bytes b;
    b.Header(1, no == 0 ? 4 : 2).PairU16("split.no", no).PairU16("split.count", count);
    if (no == 0) {
      b.Str("split.tensors.count").Type(GgufType::kInt32).U32(count);
      b.Str("general.name").Type(GgufType::kString).Str("parts");
    }
    b.Tensor(tensor, {8}, kGgufTestF32, 0).PadTo(32);
    for (int i = 0; i < 8; ++i) b.Put(static_cast<float>(no));
    return b;
  }

  static std::string MessageOf(const std::string& path) {
    try {
      GgufFile::Open(path);
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + ": " + error.what();
    }
    return "accepted";
  }

  std::filesystem::path folder_;
};

TEST_F(GgufFileTest, OpensASplitSetThroughAnyPart) {
  const std::string first = Write("m-00001-of-00003.gguf", Part(0, 3, "a"));
  Write("m-00002-of-00003.gguf", Part(1, 3, "b"));
  const std::string last = Write("m-00003-of-00003.gguf", Part(2, 3, "c"));
  for (const std::string& path : {first, last}) {
    const GgufFile file = GgufFile::Open(path);
    EXPECT_EQ(file.path(), first);
    EXPECT_EQ(file.num_parts(), 3u);
    EXPECT_EQ(file.part(2).name(), last);
    EXPECT_EQ(file.metadata().GetString("general.name"), "parts");
    EXPECT_EQ(file.file_bytes(), file.part(0).size_bytes() + 2 * file.part(1).size_bytes());
    ASSERT_EQ(file.tensors().size(), 3u);
    for (int i = 0; i < 3; ++i) {
      const GgufTensor& tensor = file.GetTensor(std::string(1, static_cast<char>('a' + i)));
      EXPECT_EQ(tensor.file_index, static_cast<uint32_t>(i));
      float value = -1;
      file.ReadTensor(tensor, 28, std::as_writable_bytes(std::span(&value, 1)));
      EXPECT_EQ(value, static_cast<float>(i));
    }
  }
}

TEST_F(GgufFileTest, NamesAMissingPart) {
  const std::string second = Write("m-00002-of-00002.gguf", Part(1, 2, "b"));
  EXPECT_THAT(MessageOf(second), HasSubstr("not_found"));
  EXPECT_THAT(MessageOf(second), HasSubstr("m-00001-of-00002.gguf: part 1 of 2"));
}

// Hubs and users keep parts under other names, and the one name that is given links to them.
TEST_F(GgufFileTest, OpensASplitSetThroughLinks) {
  std::filesystem::create_directory(folder_ / "blobs");
  std::filesystem::create_directory(folder_ / "snapshot");
  Write("blobs/d41d", Part(0, 2, "a"));
  Write("blobs/0cc1", Part(1, 2, "b"));
  std::filesystem::create_symlink("../blobs/d41d", folder_ / "snapshot/m-00001-of-00002.gguf");
  std::filesystem::create_symlink("../blobs/0cc1", folder_ / "snapshot/m-00002-of-00002.gguf");
  std::filesystem::create_symlink("snapshot/m-00001-of-00002.gguf", folder_ / "first.gguf");
  std::filesystem::create_symlink("snapshot/m-00002-of-00002.gguf", folder_ / "second.gguf");
  for (const char* name : {"snapshot/m-00002-of-00002.gguf", "first.gguf", "second.gguf",
                           "blobs/d41d", "blobs/0cc1"}) {
    const GgufFile file = GgufFile::Open((folder_ / name).string());
    ASSERT_EQ(file.tensors().size(), 2u) << name;
    EXPECT_EQ(file.tensors()[0].name, "a") << name;
    float value = -1;
    file.ReadTensor(file.GetTensor("b"), 0, std::as_writable_bytes(std::span(&value, 1)));
    EXPECT_EQ(value, 1) << name;
  }
}

TEST_F(GgufFileTest, FindsRenamedPartsByTheirHeaders) {
  const std::string first = Write("model.gguf", Part(0, 3, "a"));
  const std::string last = Write("model-rest.gguf", Part(2, 3, "c"));
  EXPECT_THAT(MessageOf(first), HasSubstr("is part 1 of 3 of a split model"));
  Write("m-00002-of-00003.gguf", Part(1, 3, "b"));
  Write("other.gguf", Part(1, 2, "z"));
  Write("notes.gguf", Bytes().Raw("GGUF, but not really"));
  for (const std::string& path : {first, last}) {
    const GgufFile file = GgufFile::Open(path);
    ASSERT_EQ(file.tensors().size(), 3u);
    EXPECT_EQ(file.path(), first);
    EXPECT_EQ(file.part(2).name(), last);
  }
  // Another file that says the same: which one is meant cannot be known.
  Write("model (1).gguf", Part(1, 3, "b"));
  EXPECT_THAT(MessageOf(first), HasSubstr("'"));
  EXPECT_THAT(MessageOf(first), HasSubstr("could be another"));
  EXPECT_THAT(MessageOf(first), HasSubstr("NAME-00001-of-00003.gguf"));
}

TEST_F(GgufFileTest, RefusesPartsThatDoNotBelongTogether) {
  const std::string first = Write("m-00001-of-00002.gguf", Part(0, 2, "a"));
  Write("m-00002-of-00002.gguf", Part(0, 2, "b"));
  EXPECT_THAT(MessageOf(first), HasSubstr("'split.no': expected 1, found 0"));
  Write("m-00002-of-00002.gguf", Part(1, 3, "b"));
  EXPECT_THAT(MessageOf(first), HasSubstr("'split.count': expected 2, found 3"));
  Write("m-00002-of-00002.gguf", Part(1, 2, "a"));
  EXPECT_THAT(MessageOf(first), HasSubstr("m-00002-of-00002.gguf: tensor 'a'"));
  Write("m-00002-of-00002.gguf", Bytes().Raw("hello"));
  EXPECT_THAT(MessageOf(first), HasSubstr("m-00002-of-00002.gguf: magic number"));
  Write("m-00002-of-00002.gguf", Part(1, 2, "b"));
  EXPECT_EQ(MessageOf(first), "accepted");
}

TEST_F(GgufFileTest, RefusesAPartNumberOutsideTheSet) {
  const std::string path = Write("m-00008-of-00002.gguf", Part(7, 2, "a"));
  EXPECT_THAT(MessageOf(path), HasSubstr("'split.no': expected less than 2, found 7"));
}

TEST_F(GgufFileTest, SaysWhyAPathCannotBeOpened) {
  EXPECT_THAT(MessageOf((folder_ / "none.gguf").string()), HasSubstr("not_found: "));
  EXPECT_THAT(MessageOf(folder_.string()), HasSubstr("io: "));
  EXPECT_THAT(MessageOf(folder_.string()), HasSubstr("a directory"));
  EXPECT_THAT(MessageOf("/dev/null"), HasSubstr("a device"));
}

TEST_F(GgufFileTest, SaysWhatToDoWithAFolder) {
  const auto folder = folder_ / "published";
  std::filesystem::create_directory(folder);
  EXPECT_THAT(MessageOf(folder.string()), HasSubstr("a directory"));
  Write("published/b.gguf", Bytes().Header(0, 0));
  Write("published/a.gguf", Bytes().Header(0, 0));
  EXPECT_THAT(MessageOf(folder.string()), HasSubstr("name a model file in it, such as a.gguf"));
  Write("published/config.json", Bytes().Raw("{}"));
  EXPECT_THAT(MessageOf(folder.string()), HasSubstr("'hearth convert " + folder.string() + " -o "));
}

// Files above a site's limit are cut with split or by hand.
TEST_F(GgufFileTest, SaysHowToJoinTheFilesOfACutOne) {
  const std::vector<std::byte> whole = Part(0, 1, "a").bytes();
  const auto write = [&](const std::string& name, size_t begin, size_t end) {
    std::ofstream out(folder_ / name, std::ios::binary);
    for (size_t i = begin; i < end; ++i) out.put(static_cast<char>(whole[i]));
    return (folder_ / name).string();
  };
  struct Case {
    const char* name;
    const char* command;
  };
  const Case cases[] = {
      {"m.Q4_K.gguf.part1of2", "'cat m.Q4_K.gguf.part1of2 m.Q4_K.gguf.part2of2 > m.Q4_K.gguf'"},
      {"m.gguf.part9of12", "'cat m.gguf.part1of12 ... m.gguf.part12of12 > m.gguf'"},
      {"m.gguf-split-b", "'cat m.gguf-split-* > m.gguf'"},
      {"m.gguf.part-aa", "'cat m.gguf.part-* > m.gguf'"},
      {"m.gguf.part01", "'cat m.gguf.part* > m.gguf'"},
      {"m.gguf.001", "'cat m.gguf.* > m.gguf'"},
      {"m.gguf.ab", "'cat m.gguf.* > m.gguf'"},
  };
  for (const Case& c : cases) {
    const std::string first = write(c.name, 0, whole.size() - 8);
    EXPECT_THAT(MessageOf(first), HasSubstr(c.command)) << c.name;
    EXPECT_THAT(MessageOf(first), HasSubstr("join all parts")) << c.name;
    EXPECT_THAT(MessageOf(write(c.name, 40, whole.size())), HasSubstr(c.command)) << c.name;
    // A whole file may be called as it likes.
    EXPECT_EQ(MessageOf(write(c.name, 0, whole.size())), "accepted") << c.name;
  }
  for (const char* name : {"m.gguf", "m.gguf.bak", "m.part1of2.gguf"}) {
    EXPECT_THAT(MessageOf(write(name, 0, 40)), testing::Not(HasSubstr("join"))) << name;
  }
}

TEST_F(GgufFileTest, ListsForeignTensorsForThoseThatOnlyShow) {
  Bytes b;
  b.Header(3, 0).Tensor("a", {8}, kGgufTestF32, 0).Tensor("new", {16, 2}, 1000, 32);
  b.Tensor("old", {32, 3}, 31, 64).PadTo(32).Zeros(256);
  const std::string path = Write("foreign.gguf", b);
  EXPECT_THAT(MessageOf(path), HasSubstr("tensor 'new': type: expected"));
  const GgufFile file = GgufFile::Open(path, ForeignTensors::kList);
  ASSERT_EQ(file.tensors().size(), 1u);
  ASSERT_EQ(file.foreign_tensors().size(), 2u);
  EXPECT_EQ(file.foreign_tensors()[1].name, "old");
  EXPECT_EQ(ForeignTypeName(file.foreign_tensors()[1].type), "Q4_0_4_4");
  EXPECT_EQ(ForeignTypeName(1000), "type 1000");
  EXPECT_EQ(file.FindTensorOrNull("new"), nullptr) << "nothing can read it";
  EXPECT_EQ((*file.FindShape("new"))[0], 16u);
  EXPECT_EQ((*file.FindShape("a"))[0], 8u);
  EXPECT_FALSE(file.FindShape("b"));
  EXPECT_THROW(file.RefuseForeignTensors(), Error);
  Bytes twice;
  twice.Header(2, 0).Tensor("a", {8}, kGgufTestF32, 0).Tensor("a", {8}, 31, 32).PadTo(32).Zeros(64);
  EXPECT_THROW(GgufFile::Open(Write("twice.gguf", twice), ForeignTensors::kList), Error);
}

TEST_F(GgufFileTest, ReadsOnlyInsideATensor) {
  const GgufFile file = OpenBytes(Bytes()
                                      .Header(2, 0)
                                      .Tensor("a", {8}, kGgufTestF32, 0)
                                      .Tensor("b", {8}, kGgufTestF32, 32)
                                      .PadTo(32)
                                      .Zeros(64)
                                      .bytes());
  std::vector<std::byte> out(33);
  const GgufTensor& a = file.GetTensor("a");
  const auto read = [&](uint64_t begin, size_t count) {
    file.ReadTensor(a, begin, std::span(out).first(count));
  };
  EXPECT_NO_THROW(read(0, 32));
  EXPECT_NO_THROW(read(32, 0));
  EXPECT_THROW(read(0, 33), Error);
  EXPECT_THROW(read(1, 32), Error);
  EXPECT_THROW(read(UINT64_MAX, 2), Error);
}

TEST_F(GgufFileTest, FindsTensorsByName) {
  const GgufFile file = OpenBytes(Bytes().Header(0, 0).bytes(), "empty.gguf");
  EXPECT_EQ(file.FindTensorOrNull("output.weight"), nullptr);
  try {
    file.GetTensor("output.weight");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_STREQ(error.what(), "empty.gguf: tensor 'output.weight' is missing");
  }
  EXPECT_THROW(GgufFile::FromReaders({}), Error);
}

}  // namespace
}  // namespace hearth
