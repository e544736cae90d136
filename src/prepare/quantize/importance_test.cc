#include "prepare/quantize/importance.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "format/test_gguf_bytes.h"
#include "prepare/pack/test_pack_models.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class LegacyBytes {
 public:
  LegacyBytes& Int(int32_t value) {
    bytes_.Put(value);
    return *this;
  }
  LegacyBytes& Name(const std::string& name) {
    Int(static_cast<int32_t>(name.size()));
    bytes_.Raw(name);
    return *this;
  }
  LegacyBytes& Entry(const std::string& name, int32_t calls, const std::vector<float>& values) {
    Name(name).Int(calls).Int(static_cast<int32_t>(values.size()));
    for (const float value : values) bytes_.Put(value);
    return *this;
  }
  const std::vector<std::byte>& bytes() const { return bytes_.bytes(); }
  ImportanceMatrix Read() const {
    return ImportanceMatrix::Read(MakeMemoryReader("old.dat", bytes()));
  }

 private:
  GgufTestBytes bytes_;
};

TEST(Importance, TheLegacyFormIsRead) {
  const ImportanceMatrix matrix = LegacyBytes()
                                      .Int(2)
                                      .Entry("blk.0.attn_q.weight", 4, {4, 8, 0})
                                      .Entry("blk.0.ffn_up.weight", 0, {2})
                                      .Int(7)
                                      .Read();
  EXPECT_THAT(matrix.entries().at("blk.0.attn_q.weight").values, ElementsAre(1, 2, 0));
  EXPECT_THAT(matrix.entries().at("blk.0.ffn_up.weight").values, ElementsAre(2));
  EXPECT_EQ(matrix.values_bytes(), 16u);
}

TEST(Importance, WhatContradictsItselfIsRefused) {
  const auto expect = [](const LegacyBytes& bytes, const char* words) {
    EXPECT_THAT([&] { bytes.Read(); }, ThrowsMessage<Error>(HasSubstr(words)));
  };
  expect(LegacyBytes(), "it is no importance matrix");
  expect(LegacyBytes().Int(0), "number of entries");
  expect(LegacyBytes().Int(-5), "number of entries");
  expect(LegacyBytes().Int(1 << 30), "number of entries");
  expect(LegacyBytes().Int(1).Int(1 << 20), "length of a name");
  expect(LegacyBytes().Int(1).Int(500), "a name");
  expect(LegacyBytes().Int(2).Entry("a", 1, {1}), "length of a name");
  expect(LegacyBytes().Int(1).Name("a").Int(-1), "number of calls");
  expect(LegacyBytes().Int(1).Name("a").Int(1).Int(2000000000), "number of values");
  expect(LegacyBytes().Int(1).Entry("a", 1, {-1}), "below zero");
  expect(LegacyBytes().Int(1).Entry("a", 1, {std::nanf("")}), "no number");
  expect(LegacyBytes().Int(1).Entry("a", 1, {std::numeric_limits<float>::infinity()}), "no number");
  expect(LegacyBytes().Int(2).Entry("a", 1, {1}).Entry("a", 1, {1}), "a is there twice");
}

// Every cut of a good file, and good files with bytes changed: an error or a matrix, nothing else.
TEST(Importance, NoBytesDoHarm) {
  const LegacyBytes good =
      LegacyBytes().Int(2).Entry("blk.0.attn_q.weight", 4, {4, 8, 0}).Entry("b", 1, {2, 3});
  const auto read = [](std::vector<std::byte> bytes) {
    try {
      ImportanceMatrix::Read(MakeMemoryReader("x", std::move(bytes)));
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kInternal);
    }
  };
  for (size_t length = 0; length < good.bytes().size(); ++length) {
    read({good.bytes().begin(), good.bytes().begin() + static_cast<int64_t>(length)});
  }
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> bytes = good.bytes();
    for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    read(std::move(bytes));
  }
}

class ImportanceFileTest : public testing::Test {
 protected:
  TestFolder folder_{"hearth_importance"};
  std::string path_ = folder_.Path("i.gguf");
};

TEST_F(ImportanceFileTest, WhatIsWrittenIsRead) {
  std::vector<InputSums> sums(2);
  sums[0] = {{"blk.0.attn_q.weight", "blk.0.attn_k.weight"}, 2, {6, 9}, {3}};
  sums[1] = {{"blk.0.ffn_up_exps.weight"}, 2, {1, 2, 0, 0, 8, 4}, {1, 0, 4}};
  WriteImportance(path_, sums, {"book.txt", 5, 512});
  const ImportanceMatrix matrix = ImportanceMatrix::Load(path_);
  EXPECT_EQ(matrix.entries().size(), 3u);
  EXPECT_THAT(matrix.entries().at("blk.0.attn_k.weight").values, ElementsAre(2, 3));
  EXPECT_THAT(matrix.entries().at("blk.0.ffn_up_exps.weight").values,
              ElementsAre(1, 2, 0, 0, 2, 1));
  const GgufFile file = GgufFile::Open(path_);
  EXPECT_EQ(file.metadata().GetString("general.type"), "imatrix");
  EXPECT_EQ(file.metadata().GetUint("imatrix.chunk_count"), 5u);
  EXPECT_EQ(file.metadata().GetUint("imatrix.chunk_size"), 512u);
  EXPECT_THAT(*file.metadata().FindStrings("imatrix.datasets"), ElementsAre("book.txt"));
  EXPECT_THAT(file.GetTensor("blk.0.ffn_up_exps.weight.counts").ne, ElementsAre(1, 3, 1, 1));
}

TEST_F(ImportanceFileTest, OtherGgufFilesAreRefused) {
  EXPECT_THAT([] { ImportanceMatrix::Load(SourcePath("tests/goldens/llama.gguf")); },
              ThrowsMessage<Error>(HasSubstr("general.type: expected imatrix, found")));
  GgufMetadata metadata;
  metadata.SetString("general.type", "imatrix");
  const auto write = [&](const std::vector<GgufTensorDecl>& decls) {
    GgufWriter writer(path_, metadata, decls);
    const std::vector<float> ones(64, 1.0f);
    while (writer.BytesLeftInTensor() > 0) {
      writer.Append(std::as_bytes(std::span(ones)).first(writer.BytesLeftInTensor()));
    }
    writer.Finish();
  };
  write({});
  EXPECT_THAT([&] { ImportanceMatrix::Load(path_); },
              ThrowsMessage<Error>(HasSubstr("the importance of no matrix")));
  write({{"a.in_sum2", DType::kF32, {4, 2}}});
  EXPECT_THAT([&] { ImportanceMatrix::Load(path_); }, ThrowsMessage<Error>(HasSubstr("a.counts")));
  write({{"a.in_sum2", DType::kF32, {4, 2}}, {"a.counts", DType::kF32, {1, 3}}});
  EXPECT_THAT([&] { ImportanceMatrix::Load(path_); },
              ThrowsMessage<Error>(HasSubstr("counts of a: expected 2, found 3")));
  write({{"a.in_sum2", DType::kF16, {4, 2}}, {"a.counts", DType::kF32, {1, 2}}});
  EXPECT_THAT([&] { ImportanceMatrix::Load(path_); },
              ThrowsMessage<Error>(HasSubstr("type of a.in_sum2: expected F32")));
}

TEST_F(ImportanceFileTest, NamesOfAnotherModelAreSaid) {
  const GgufFile model = GgufFile::Open(SourcePath("tests/goldens/llama.gguf"));
  const ImportanceMatrix other = LegacyBytes().Int(1).Entry("blk.77.attn_q.weight", 1, {1}).Read();
  EXPECT_THAT([&] { other.Strangers(model); },
              ThrowsMessage<Error>(HasSubstr("it is of another model")));
  const ImportanceMatrix some = LegacyBytes()
                                    .Int(2)
                                    .Entry("blk.77.attn_q.weight", 1, {1})
                                    .Entry("blk.0.attn_q.weight", 1, std::vector<float>(48, 1.0f))
                                    .Read();
  EXPECT_THAT(some.Strangers(model), ElementsAre("blk.77.attn_q.weight"));
  EXPECT_NE(some.Find(model, model.GetTensor("blk.0.attn_q.weight")), nullptr);
  EXPECT_EQ(some.Find(model, model.GetTensor("blk.0.attn_k.weight")), nullptr);
}

}  // namespace
}  // namespace hearth
