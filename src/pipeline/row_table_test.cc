#include "pipeline/row_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/random_words.h"
#include "kernels/dequantize.h"
#include "storage/async/counting_file.h"
#include "storage/async/faulty_file.h"
#include "storage/async/memory_file.h"
#include "storage/async/test_async_files.h"

namespace hearth {
namespace {

constexpr uint64_t kBegin = 4096 + 96;  // of row 0

// A file with a matrix of finite numbers in it, and what its rows are.
class RowTableTest : public testing::Test {
 protected:
  void Make(const RowTableSpec& spec, const FaultScript& faults = {}) {
    spec_ = spec;
    spec_.name = "rows";
    spec_.offset = kBegin;
    stored_ = RandomBytes(kBegin + spec_.bytes(), 7);
    if (spec_.dtype == DType::kF32) {
      for (uint64_t at = kBegin; at + 4 <= stored_.size(); at += 4) {
        const auto value = static_cast<float>(at % 1000) / 8;
        std::memcpy(stored_.data() + at, &value, sizeof(value));
      }
    } else {
      // Blocks of Q8_0 begin with a scale in F16.
      for (uint64_t at = kBegin; at + 34 <= stored_.size(); at += 34) {
        const uint16_t scale = 0x2e00;
        std::memcpy(stored_.data() + at, &scale, sizeof(scale));
      }
    }
    Buffer bytes(budget_, "file", stored_.size());
    std::memcpy(bytes.data(), stored_.data(), stored_.size());
    auto counting = std::make_unique<CountingFile>(std::make_unique<FaultyFile>(
        MakeMemoryFile("weights", std::move(bytes),
                       {.alignment_bytes = 512, .memory_alignment_bytes = 512}),
        faults));
    reads_ = counting.get();
    table_ = std::make_unique<RowTable>(budget_, spec_, std::move(counting));
  }

  std::vector<float> LookUp(const std::vector<int32_t>& ids) {
    std::vector<float> out(ids.size() * static_cast<size_t>(spec_.cols));
    table_->LookUp(compute_, ids, {out.data(), std::ssize(ids), spec_.cols, spec_.cols});
    return out;
  }
  std::vector<float> Expected(const std::vector<int32_t>& ids) const {
    std::vector<float> out(ids.size() * static_cast<size_t>(spec_.cols));
    for (size_t i = 0; i < ids.size(); ++i) {
      kernels::Dequantize(spec_.dtype,
                          stored_.data() + kBegin + static_cast<size_t>(ids[i]) * spec_.row_bytes(),
                          spec_.cols, out.data() + i * static_cast<size_t>(spec_.cols));
    }
    return out;
  }

  Budget budget_;
  Compute compute_{"scalar", 2};
  RowTableSpec spec_;
  std::vector<std::byte> stored_;
  CountingFile* reads_ = nullptr;
  std::unique_ptr<RowTable> table_;
};

TEST_F(RowTableTest, RowsAreThoseOfTheFile) {
  for (const RowTableSpec& spec :
       {RowTableSpec{.dtype = DType::kF32, .cols = 1, .rows = 3000, .most_ids = 200},
        RowTableSpec{.dtype = DType::kF32, .cols = 257, .rows = 90, .most_ids = 200},
        RowTableSpec{.dtype = DType::kQ8_0, .cols = 4096, .rows = 2500, .most_ids = 200}}) {
    Make(spec);
    RandomWords random(11);
    for (const size_t count : {1, 2, 33, 200, 1, 64, 199}) {
      std::vector<int32_t> ids(count);
      for (int32_t& id : ids) {
        id = static_cast<int32_t>(random.Next() % static_cast<uint64_t>(spec.rows));
      }
      ids.back() = static_cast<int32_t>(spec.rows) - 1;
      ids.front() = ids.back();
      EXPECT_EQ(LookUp(ids), Expected(ids)) << spec.cols << " columns, " << count << " rows";
    }
    EXPECT_EQ(table_->counts().read, reads_->counts().reads);
  }
}

TEST_F(RowTableTest, RowsUsedLatelyAreNotReadAgain) {
  Make({.dtype = DType::kF32, .cols = 8, .rows = 5000, .most_ids = 16});
  LookUp({1, 2, 3, 2});
  EXPECT_EQ(table_->counts().read, 3);
  EXPECT_EQ(table_->counts().found, 1);
  // All others that are kept come after it, but for one.
  for (int32_t id = 4; id < RowTable::kKeptRows + 3; ++id) LookUp({id, 1});
  EXPECT_EQ(LookUp({1}), Expected({1}));
  const uint64_t before = reads_->counts().reads;
  EXPECT_EQ(LookUp({1, 5, 2}), Expected({1, 5, 2}));
  EXPECT_EQ(reads_->counts().reads, before + 1) << "row 2 has left, row 5 has not";
}

TEST_F(RowTableTest, MemoryIsWhatIsCharged) {
  Make({.dtype = DType::kQ8_0, .cols = 4096, .rows = 5000, .most_ids = 256});
  EXPECT_EQ(budget_.Ledger().at("embedding rows"), RowTable::ChargedBytes(spec_));
  EXPECT_LT(RowTable::ChargedBytes(spec_), spec_.bytes() / 3);
}

TEST_F(RowTableTest, ARowThatCannotBeReadIsNamedAndReadTheNextTime) {
  Make({.dtype = DType::kF32, .cols = 8, .rows = 100, .most_ids = 16},
       {{.kind = FaultKind::kError, .nth_read = 1}});
  LookUp({4});
  try {
    LookUp({4, 77});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), testing::HasSubstr("row 77 of rows"));
  }
  EXPECT_EQ(LookUp({4, 77}), Expected({4, 77}));
}

TEST_F(RowTableTest, MoreIdsThanWereSaidAreRefused) {
  Make({.dtype = DType::kF32, .cols = 8, .rows = 100, .most_ids = 2});
  EXPECT_THROW(LookUp({1, 2, 3}), Error);
}

}  // namespace
}  // namespace hearth
