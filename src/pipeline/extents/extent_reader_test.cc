#include "pipeline/extents/extent_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "base/error.h"
#include "storage/async/faulty_file.h"
#include "storage/async/memory_file.h"

namespace hearth {
namespace {

using testing::HasSubstr;

constexpr int64_t kHidden = 64;
constexpr int64_t kNeurons = 640;
constexpr int kBuffers = 5;

// Two layers of random bytes, some extents to a matrix.
class ExtentReaderTest : public testing::Test {
 protected:
  ExtentReaderTest() : map_(Layers(), 8192) {
    std::mt19937_64 random(1);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
  }

  static std::vector<ExtentMap::Layer> Layers() {
    std::vector<ExtentMap::Layer> layers(2);
    uint64_t offset = 1000;
    for (ExtentMap::Layer& layer : layers) {
      for (ExtentMatrix& matrix : layer) {
        const bool is_down = &matrix == &layer.back();
        matrix = {.offset = offset,
                  .stored = DType::kF16,
                  .view = {.dtype = DType::kF16,
                           .cols = is_down ? kNeurons : kHidden,
                           .rows = is_down ? kHidden : kNeurons}};
        offset += static_cast<uint64_t>(kHidden * kNeurons) * 2;
      }
    }
    return layers;
  }

  void Open(uint64_t completion_seed, FaultScript faults = {}) {
    reader_.reset();
    files_.clear();
    Buffer copy(budget_, "file", bytes_.size());
    std::memcpy(copy.data(), bytes_.data(), bytes_.size());
    files_.push_back(MakeMemoryFile("model.gguf", std::move(copy),
                                    {.alignment_bytes = 512,
                                     .memory_alignment_bytes = 512,
                                     .completion_seed = completion_seed}));
    if (!faults.empty()) {
      files_[0] = std::make_unique<FaultyFile>(std::move(files_[0]), std::move(faults));
    }
    reader_ = std::make_unique<ExtentReader>(budget_, map_, files_, kBuffers);
  }

  void ExpectItsBytes(const ExtentReader::Taken& taken) const {
    const Extent extent = map_.At(taken.key);
    ASSERT_EQ(taken.stored.size(), extent.stored_bytes());
    EXPECT_EQ(
        std::memcmp(taken.stored.data(), bytes_.data() + extent.file_offset(), taken.stored.size()),
        0);
  }

  ExtentMap map_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(600000);
  Budget budget_;
  std::vector<std::unique_ptr<AsyncFile>> files_;
  std::unique_ptr<ExtentReader> reader_;
};

TEST_F(ExtentReaderTest, TakesInOrder) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Open(seed);
    const auto keys = static_cast<int32_t>(map_.keys_of_layer());
    for (int32_t key = keys - 1; key >= 0; --key) reader_->Ask(key);
    for (int32_t key = keys - 1; key >= 0; --key) {
      ExpectItsBytes({key, reader_->Take()});
      reader_->Done();
    }
    EXPECT_EQ(reader_->num_asked(), 0);
  }
}

// However many are wanted, each comes once, and only those that are wanted.
TEST_F(ExtentReaderTest, TakesWhatCameFirst) {
  bool is_another_order = false;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Open(seed);
    const auto keys = static_cast<int32_t>(map_.keys_of_layer());
    for (int32_t key = 0; key < 2 * keys; ++key) reader_->Ask(key);
    for (const int32_t first : {0, keys}) {  // a layer is done with before the next
      std::vector<int32_t> taken;
      for (int32_t left = keys; left > 0; --left) {
        const ExtentReader::Taken one = reader_->TakeAnyOf(left);
        ExpectItsBytes(one);
        taken.push_back(one.key - first);
        reader_->Done();
      }
      is_another_order = is_another_order || !std::is_sorted(taken.begin(), taken.end());
      std::sort(taken.begin(), taken.end());
      for (int32_t i = 0; i < keys; ++i) EXPECT_EQ(taken[static_cast<size_t>(i)], i);
    }
  }
  EXPECT_TRUE(is_another_order);
}

// The slowest read of what is wanted keeps none of the others waiting.
TEST_F(ExtentReaderTest, OneThatIsLateIsTakenLast) {
  Open(0, {{.kind = FaultKind::kDelay, .nth_read = 0, .delay_ns = 300'000'000}});
  for (int32_t key = 0; key < kBuffers; ++key) reader_->Ask(key);
  for (int32_t left = kBuffers; left > 0; --left) {
    const ExtentReader::Taken one = reader_->TakeAnyOf(left);
    EXPECT_EQ(one.key == 0, left == 1);
    reader_->Done();
  }
}

TEST_F(ExtentReaderTest, GoesOnAfterAFailure) {
  Open(3, {{.kind = FaultKind::kError, .nth_read = 2}});
  for (int32_t key = 0; key < kBuffers; ++key) reader_->Ask(key);
  std::string message;
  for (int32_t left = kBuffers; left > 0 && message.empty(); --left) {
    try {
      reader_->TakeAnyOf(left);
      reader_->Done();
    } catch (const Error& error) {
      message = error.what();
    }
  }
  EXPECT_THAT(message, HasSubstr("model.gguf"));
  reader_->Stop();
  EXPECT_EQ(reader_->num_asked(), 0);
  reader_->Ask(4);
  ExpectItsBytes({4, reader_->Take()});
  reader_->Done();
}

TEST_F(ExtentReaderTest, RefusesMoreThanFit) {
  Open(0);
  EXPECT_THROW(reader_->Take(), Error);
  for (int64_t i = 0; i < reader_->capacity(); ++i) reader_->Ask(0);
  EXPECT_THROW(reader_->Ask(0), Error);
}

}  // namespace
}  // namespace hearth
