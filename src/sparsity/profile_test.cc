#include "sparsity/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <random>

#include "base/checksum.h"
#include "base/error.h"
#include "base/test_data.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

struct Shape {
  int64_t layers, experts, neurons;
};

// Numbers of all sizes; every field differs from its default.
ModelProfile RandomProfile(const Shape& shape, uint32_t seed) {
  std::mt19937_64 random(seed);
  ModelProfile profile;
  profile.model_name = "some \xff model";
  profile.model_hash = random();
  profile.text_hash = random();
  profile.total_tokens = random() >> 20;
  profile.text_tokens = profile.total_tokens / 2;
  profile.context = 777;
  profile.kv_codec = KvCodec::kF32;
  profile.activation = FfnActivation::kFatRelu;
  profile.threshold = 0.01f;
  profile.num_layers = shape.layers;
  profile.num_experts = shape.experts;
  profile.intermediate_size = shape.neurons;
  profile.ffns.resize(static_cast<size_t>(shape.layers * profile.ffns_per_layer()));
  for (FfnProfile& ffn : profile.ffns) {
    ffn.tokens = random() % (profile.text_tokens + 1);
    for (int64_t j = 0; j < shape.neurons; ++j) {
      ffn.gate_fired.push_back(random() % (ffn.tokens + 1));
      ffn.active.push_back(random() % (ffn.gate_fired.back() + 1));
      ffn.mass.push_back(static_cast<double>(random()) / 3e5);
      ffn.down_norm.push_back(static_cast<float>(random() % 1000) / 7);
    }
  }
  return profile;
}

void ExpectSame(const ModelProfile& a, const ModelProfile& b) {
  EXPECT_EQ(a.model_name, b.model_name);
  EXPECT_EQ(a.model_hash, b.model_hash);
  EXPECT_EQ(a.text_hash, b.text_hash);
  EXPECT_EQ(a.text_tokens, b.text_tokens);
  EXPECT_EQ(a.total_tokens, b.total_tokens);
  EXPECT_EQ(a.context, b.context);
  EXPECT_EQ(a.kv_codec, b.kv_codec);
  EXPECT_EQ(a.activation, b.activation);
  EXPECT_EQ(a.threshold, b.threshold);
  EXPECT_EQ(a.num_layers, b.num_layers);
  EXPECT_EQ(a.num_experts, b.num_experts);
  EXPECT_EQ(a.intermediate_size, b.intermediate_size);
  ASSERT_EQ(a.ffns.size(), b.ffns.size());
  for (size_t i = 0; i < a.ffns.size(); ++i) {
    EXPECT_EQ(a.ffns[i].tokens, b.ffns[i].tokens);
    EXPECT_EQ(a.ffns[i].gate_fired, b.ffns[i].gate_fired);
    EXPECT_EQ(a.ffns[i].active, b.ffns[i].active);
    EXPECT_EQ(a.ffns[i].mass, b.ffns[i].mass);
    EXPECT_EQ(a.ffns[i].down_norm, b.ffns[i].down_norm);
  }
}

class ProfileFileTest : public testing::Test {
 protected:
  ~ProfileFileTest() override { std::filesystem::remove(path_); }

  std::vector<std::byte> Saved(const ModelProfile& profile) {
    SaveProfile(profile, path_);
    const std::string text = ReadWholeFile(path_);
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return {begin, begin + text.size()};
  }
  // What reading these bytes says.
  static std::string Refusal(std::vector<std::byte> bytes) {
    try {
      ReadProfile(*MakeMemoryReader("it", std::move(bytes)));
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + ": " + error.what();
    }
    return "taken";
  }
  // The same with the checksum set right, as somebody would who means harm.
  static std::string RefusalOfForged(std::vector<std::byte> bytes) {
    const uint64_t sum = Checksum(std::span(bytes).first(bytes.size() - 8));
    std::memcpy(bytes.data() + bytes.size() - 8, &sum, 8);
    return Refusal(std::move(bytes));
  }
  template <typename T>
  static std::vector<std::byte> With(std::vector<std::byte> bytes, size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
    return bytes;
  }

  const std::string path_ = testing::TempDir() + "/profile." + std::to_string(getpid());
};

TEST_F(ProfileFileTest, ComesBackAsItWas) {
  uint32_t seed = 1;
  for (const Shape& shape : {Shape{1, 0, 1}, Shape{3, 0, 17}, Shape{2, 5, 3}, Shape{1, 1, 64}}) {
    const ModelProfile profile = RandomProfile(shape, seed++);
    SaveProfile(profile, path_);
    ExpectSame(LoadProfile(path_), profile);
  }
}

TEST_F(ProfileFileTest, EveryTruncationIsRefused) {
  const std::vector<std::byte> bytes = Saved(RandomProfile({2, 2, 3}, 7));
  EXPECT_EQ(Refusal(bytes), "taken");
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(Refusal({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}),
                HasSubstr("corrupt: it: "))
        << size;
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THAT(Refusal(longer), HasSubstr("bytes after the header"));
}

TEST_F(ProfileFileTest, EveryFlippedByteIsRefused) {
  const std::vector<std::byte> bytes = Saved(RandomProfile({2, 0, 5}, 8));
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      std::vector<std::byte> altered = bytes;
      altered[i] ^= static_cast<std::byte>(1 << bit);
      EXPECT_NE(Refusal(altered), "taken") << i;
    }
  }
}

TEST_F(ProfileFileTest, ValuesThatMakeNoSenseAreRefused) {
  const std::vector<std::byte> bytes = Saved(RandomProfile({1, 0, 2}, 9));
  ASSERT_EQ(RefusalOfForged(bytes), "taken");
  // Offsets are docs/formats/profile.md's.
  EXPECT_THAT(Refusal(With(bytes, 0, 'x')), HasSubstr("no profile of Hearth"));
  EXPECT_THAT(RefusalOfForged(With(bytes, 8, 2u)), HasSubstr("unsupported: it: profile: version"));
  EXPECT_THAT(RefusalOfForged(With(bytes, 12, 1u << 31)), HasSubstr("model's name"));
  EXPECT_THAT(RefusalOfForged(With(bytes, 32, UINT64_MAX)), HasSubstr("tokens"));
  EXPECT_THAT(RefusalOfForged(With(bytes, 48, uint64_t{0})), HasSubstr("context"));
  for (const uint64_t huge : {uint64_t{0}, uint64_t{1} << 40, UINT64_MAX}) {
    EXPECT_THAT(RefusalOfForged(With(bytes, 56, huge)), HasSubstr("layers"));
    EXPECT_THAT(RefusalOfForged(With(bytes, 72, huge)), HasSubstr("neurons"));
  }
  EXPECT_THAT(RefusalOfForged(With(bytes, 64, UINT64_MAX)), HasSubstr("experts"));
  EXPECT_THAT(RefusalOfForged(With(bytes, 56, uint64_t{4096})), HasSubstr("bytes after"));
  EXPECT_THAT(RefusalOfForged(With(bytes, 80, 9999u)), HasSubstr("KV type"));
  EXPECT_THAT(RefusalOfForged(With(bytes, 84, 99u)), HasSubstr("activation"));
  EXPECT_THAT(RefusalOfForged(With(bytes, 88, std::numeric_limits<float>::quiet_NaN())),
              HasSubstr("threshold"));
  EXPECT_THAT(RefusalOfForged(With(bytes, 92, 1u)), HasSubstr("reserved"));
  const size_t ffn = 96 + std::string("some x model").size();
  EXPECT_THAT(RefusalOfForged(With(bytes, ffn, UINT64_MAX)), HasSubstr("tokens of an FFN"));
  EXPECT_THAT(RefusalOfForged(With(bytes, ffn + 8, UINT64_MAX)), HasSubstr("gates fired"));
  EXPECT_THAT(RefusalOfForged(With(bytes, ffn + 24, UINT64_MAX)), HasSubstr("active"));
  for (const double mass :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(RefusalOfForged(With(bytes, ffn + 40, mass)), HasSubstr("mass"));
    EXPECT_THAT(RefusalOfForged(With(bytes, ffn + 56, static_cast<float>(mass))),
                HasSubstr("length of a column"));
  }
}

TEST_F(ProfileFileTest, PartsThatDoNotFitAreNotWritten) {
  ModelProfile profile = RandomProfile({2, 0, 4}, 3);
  profile.ffns.back().mass.pop_back();
  EXPECT_THROW(SaveProfile(profile, path_), Error);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_THROW(LoadProfile(path_), Error);
}

}  // namespace
}  // namespace hearth
