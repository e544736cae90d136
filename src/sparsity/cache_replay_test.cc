#include "sparsity/cache_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/test_data.h"
#include "sparsity/trace.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kHead =
    "# route_trace v1\n"
    "# model=/some/where/tiny.gguf arch=x n_layer=2 n_expert=4 n_expert_used=2\n"
    "# layer=0 expert_bytes=10 dense_bytes=20\n"
    "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n";

AccessSequence ReadText(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return ReadAccessSequence(MakeMemoryReader("a.csv", {bytes.begin(), bytes.end()}));
}

std::string RefusalOf(const std::string& text) {
  try {
    ReadText(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(AccessSequence, ReadsAnExpertTrace) {
  // A prompt of two tokens, then two tokens, of which the last ends the file without a new line.
  const AccessSequence sequence = ReadText(std::string(kHead) +
                                           "0,0,0,0,0,3,0.5,0,10\n0,0,0,0,1,1,0.5,0,10\n"
                                           "0,0,1,0,0,3,0.5,0,10\n"
                                           "0,0,1,1,0,2,0.5,0,10\n"
                                           "0,1,2,0,0,0,0.5,0,10\n0,1,2,1,0,2,0.5,0,10\r\n"
                                           "0,1,3,0,0,1,0.5,0,10");
  EXPECT_EQ(sequence.unit, AccessUnit::kExperts);
  EXPECT_EQ(sequence.model_name, "tiny.gguf");
  EXPECT_EQ(sequence.num_keys(), 8);
  EXPECT_EQ(sequence.num_passes(), 3);
  ASSERT_EQ(sequence.num_batches(), 6);
  EXPECT_THAT(sequence.batch(0), ElementsAre(3, 1));
  EXPECT_THAT(sequence.batch(1), ElementsAre(3));
  EXPECT_THAT(sequence.batch(2), ElementsAre(4 + 2));
  EXPECT_THAT(sequence.batch(4), ElementsAre(4 + 2));
  EXPECT_FALSE(sequence.ends_pass(1));
  EXPECT_TRUE(sequence.ends_pass(2));
  EXPECT_TRUE(sequence.ends_pass(4));
  EXPECT_TRUE(sequence.ends_pass(5));
}

TEST(AccessSequence, RefusesWhatIsNoExpertTrace) {
  const std::string head = kHead;
  EXPECT_THAT(RefusalOf(""), HasSubstr("line 1: first line"));
  EXPECT_THAT(RefusalOf("hello\n"), HasSubstr("or a neuron trace"));
  EXPECT_THAT(RefusalOf("# route_trace v1\nturn\n"), HasSubstr("n_layer and n_expert"));
  EXPECT_THAT(RefusalOf("# route_trace v1\n# model=a n_layer=5000 n_expert=4\n"),
              HasSubstr("0 to 4096"));
  EXPECT_THAT(RefusalOf("# route_trace v1\n# model=a n_layer=2 n_expert=4\nturn,layer\n"),
              HasSubstr("columns"));
  EXPECT_THAT(RefusalOf(head), HasSubstr("empty"));
  EXPECT_THAT(RefusalOf(head + "0,0,0,2,0,3,0.5,0,10\n"), HasSubstr("line 5: number"));
  EXPECT_THAT(RefusalOf(head + "0,0,0,0,0,4,0.5,0,10\n"), HasSubstr("0 to 3"));
  EXPECT_THAT(RefusalOf(head + "0,0,0,0,0,-1,0.5,0,10\n"), HasSubstr("0 to 3"));
  EXPECT_THAT(RefusalOf(head + "0,0,0,0,0\n"), HasSubstr("line 5"));
  EXPECT_THAT(RefusalOf(head + "0,0,0,0,0,99999999999999999999,\n"), HasSubstr("line 5: number"));
  EXPECT_THAT(RefusalOf(head + "0,0,0,0,0,3,1\n0,0,0,0,1,3,1\n"), HasSubstr("each expert"));
}

class TraceFile : public testing::Test {
 protected:
  ~TraceFile() override { std::filesystem::remove(path_); }

  AccessSequence WriteAndRead(const TraceHeader& header, const std::vector<int32_t>& experts) {
    TraceWriter writer(path_, header);
    const std::vector<int32_t> token = {7};
    for (int i = 0; i < 2; ++i) {
      writer.BeginBatch(token, i == 0);
      for (int64_t list = 0; list < header.lists_per_token(); ++list) {
        const std::vector<int32_t> neurons = {static_cast<int32_t>(list) + i, 9};
        writer.Append(0, experts[static_cast<size_t>(list)], neurons);
      }
      writer.EndBatch();
    }
    writer.Finish();
    return ReadAccessSequence(OpenFileReader(path_));
  }

  const std::string path_ = testing::TempDir() + "replay_" + std::to_string(getpid());
};

TEST_F(TraceFile, GivesNeuronsAsKeys) {
  const AccessSequence sequence = WriteAndRead({.activation = FfnActivation::kRelu,
                                                .num_layers = 2,
                                                .num_experts = 3,
                                                .num_experts_per_token = 2,
                                                .intermediate_size = 10},
                                               {0, 2, 1, 2});
  EXPECT_EQ(sequence.unit, AccessUnit::kNeurons);
  EXPECT_EQ(sequence.num_keys(), 60);
  EXPECT_EQ(sequence.num_passes(), 2);
  ASSERT_EQ(sequence.num_batches(), 8);
  EXPECT_THAT(sequence.batch(0), ElementsAre(0, 9));
  EXPECT_THAT(sequence.batch(1), ElementsAre(21, 29));
  EXPECT_THAT(sequence.batch(7), ElementsAre(54, 59));
  EXPECT_TRUE(sequence.ends_pass(3));
}

TEST_F(TraceFile, GivesExpertsThatAreDenseInsideAsKeys) {
  const AccessSequence sequence = WriteAndRead({.activation = FfnActivation::kSilu,
                                                .num_layers = 2,
                                                .num_experts = 3,
                                                .num_experts_per_token = 2,
                                                .intermediate_size = 10},
                                               {0, 2, 1, 2});
  EXPECT_EQ(sequence.unit, AccessUnit::kExperts);
  EXPECT_EQ(sequence.num_keys(), 6);
  ASSERT_EQ(sequence.num_batches(), 4);
  EXPECT_THAT(sequence.batch(1), ElementsAre(4, 5));
}

TEST_F(TraceFile, RefusesAModelThatNeedsEverything) {
  EXPECT_THROW(
      WriteAndRead({.activation = FfnActivation::kSilu, .num_layers = 2, .intermediate_size = 10},
                   {0, 0}),
      Error);
}

TEST(CacheReplay, RefusesSenselessOptions) {
  const AccessSequence sequence = ReadText(std::string(kHead) + "0,0,0,0,0,3,1\n");
  EXPECT_THROW(ReplayCaches(sequence, {.policies = {}, .capacities = {0.5}}), Error);
  EXPECT_THROW(ReplayCaches(sequence, {.policies = {CachePolicyKind::kLru}, .capacities = {0}}),
               Error);
  EXPECT_THROW(ReplayCaches(sequence, {.policies = {CachePolicyKind::kLru}, .capacities = {1.1}}),
               Error);
}

class RecordedRouting : public testing::TestWithParam<const char*> {
 protected:
  static ReplayResult Replay(const std::string& name, std::vector<double> capacities) {
    const auto all = AllCachePolicies();
    return ReplayCaches(
        ReadAccessSequence(OpenFileReader(SharedPath(name))),
        {.policies = {all.begin(), all.end()}, .capacities = std::move(capacities)});
  }
  static double Rate(const ReplayResult& result, size_t point, CachePolicyKind policy) {
    for (const ReplayHits& hits : result.points[point].policies) {
      if (hits.policy == policy) {
        return static_cast<double>(hits.hits) / static_cast<double>(result.accesses);
      }
    }
    return -1;
  }
};

TEST_P(RecordedRouting, LeavesTheDefaultNeverAPointUnderLru) {
  HEARTH_NEED_SHARED(GetParam());
  const ReplayResult result = Replay(GetParam(), {0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6});
  for (size_t i = 0; i < result.points.size(); ++i) {
    EXPECT_GT(Rate(result, i, kDefaultCachePolicy), Rate(result, i, CachePolicyKind::kLru) - 0.01)
        << result.points[i].capacity;
    for (const ReplayHits& hits : result.points[i].policies) {
      EXPECT_LE(hits.hits, result.points[i].belady_hits) << CachePolicyName(hits.policy);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Traces, RecordedRouting,
                         testing::Values("data/traces/qwen3-30b-a3b.route.csv",
                                         "data/traces/gpt-oss-120b.route.csv"),
                         [](const auto& trace) { return trace.index == 0 ? "qwen3" : "gpt_oss"; });

using RecordedRoutingOfQwen3 = RecordedRouting;

// The figures of the design: all rows in the file's order, a batch per step and layer.
TEST_P(RecordedRoutingOfQwen3, HitsAsOftenAsTheDesignSays) {
  HEARTH_NEED_SHARED(GetParam());
  const ReplayResult result = Replay(GetParam(), {0.1, 0.2, 0.3});
  const struct {
    CachePolicyKind policy;
    double rates[3];
  } expected[] = {{CachePolicyKind::kTwoQueue, {0.31, 0.53, 0.84}},
                  {CachePolicyKind::kLru, {0.53, 0.73, 0.84}},
                  {CachePolicyKind::kS3Fifo, {0.54, 0.75, 0.84}}};
  for (size_t i = 0; i < 3; ++i) {
    for (const auto& row : expected) {
      // 0.53 where the experts of a batch are looked up and admitted one by one; found together
      // first, as here, they make it 0.57.
      const bool edge = row.policy == CachePolicyKind::kTwoQueue && i == 1;
      EXPECT_NEAR(Rate(result, i, row.policy), row.rates[i], edge ? 0.05 : 0.01)
          << CachePolicyName(row.policy) << " at " << i;
    }
    const double bounds[] = {0.74, 0.86, 0.90};
    EXPECT_NEAR(static_cast<double>(result.points[i].belady_hits), bounds[i] * 44766, 0.01 * 44766);
  }
}

INSTANTIATE_TEST_SUITE_P(Traces, RecordedRoutingOfQwen3,
                         testing::Values("data/traces/qwen3-30b-a3b.route.csv"));

}  // namespace
}  // namespace hearth
