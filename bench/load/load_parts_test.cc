#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "load/samples.h"
#include "load/watch.h"
#include "load/wire.h"
#include "load/workload.h"

namespace hearth::load {
namespace {

using ::testing::ElementsAre;

TEST(SamplesTest, QuantilesAreThoseOfSortedValues) {
  std::mt19937 random(7);
  for (const size_t count : {1, 2, 3, 10, 99, 100, 101, 1000}) {
    Samples samples;
    std::vector<double> values;
    for (size_t i = 0; i < count; ++i) {
      values.push_back(std::uniform_real_distribution<double>(0, 5)(random));
      samples.Add(values.back());
    }
    std::sort(values.begin(), values.end());
    EXPECT_EQ(samples.max(), values.back());
    for (const double share : {0.0, 0.01, 0.5, 0.9, 0.99, 1.0}) {
      const double value = samples.Quantile(share);
      const auto not_above = std::upper_bound(values.begin(), values.end(), value) - values.begin();
      EXPECT_GE(static_cast<double>(not_above), share * static_cast<double>(count));
      const auto below = std::lower_bound(values.begin(), values.end(), value) - values.begin();
      EXPECT_TRUE(below == 0 || static_cast<double>(below) < share * static_cast<double>(count));
    }
    uint64_t counted = 0;
    for (const uint64_t n : samples.Histogram()) counted += n;
    EXPECT_EQ(counted, count);
  }
  EXPECT_EQ(Samples().Quantile(0.5), 0);
  EXPECT_EQ(Samples().max(), 0);
}

TEST(SamplesTest, BucketsHoldWhatTheySay) {
  Samples samples;
  for (const double value : {0.0, 0.001, 0.00101, 0.5, 999.0, 1001.0}) samples.Add(value);
  const auto counts = samples.Histogram();
  EXPECT_EQ(counts[0], 2u);
  EXPECT_EQ(counts[1], 1u);
  EXPECT_EQ(counts.back(), 1u);
  EXPECT_NEAR(Samples::UpperBound(Samples::kBuckets - 2), 1000, 1e-6);
}

TEST(SamplesTest, ATrendIsTheLineOfLeastSquares) {
  std::vector<Point> points = {{0, 1e9}};  // the warm-up
  for (int i = 10; i < 50; ++i) points.push_back({i * 1.0, 100 + 3.0 * i + (i % 2 ? 1 : -1)});
  const Trend trend = TrendOf(points, 10);
  EXPECT_EQ(trend.points, 40u);
  EXPECT_NEAR(trend.slope_per_second, 3, 0.01);
  EXPECT_NEAR(trend.change(), 39 * 3, 0.5);
  EXPECT_EQ(trend.first, 129);
  EXPECT_EQ(TrendOf(points, 1000).points, 0u);
  EXPECT_EQ(TrendOf({{1, 5}}, 0).slope_per_second, 0);
}

TEST(WireTest, UrlsAreTakenApart) {
  EXPECT_EQ(ParseUrl("http://127.0.0.1:8080").host, "127.0.0.1");
  EXPECT_EQ(ParseUrl("http://127.0.0.1:8080/").port, "8080");
  EXPECT_EQ(ParseUrl("http://server").port, "80");
  EXPECT_EQ(ParseUrl("http://[::1]:99").host, "::1");
  EXPECT_EQ(ParseUrl("http://[::1]:99").host_header(), "[::1]:99");
  for (const char* bad :
       {"", "127.0.0.1:80", "https://a", "http://", "http://:80", "http://a:", "http://a:x",
        "http://a:70000", "http://a/b", "http://[::1", "http://[::1]x", "http://user@a"}) {
    EXPECT_THROW(ParseUrl(bad), Error) << bad;
  }
}

TEST(WireTest, EventsAreTheSameHoweverTheBytesCome) {
  const std::string stream =
      "data: {\"a\": 1}\r\n\r\n: a comment\nevent: x\ndata: two\ndata:lines\n\n\ndata: [DONE]\n\n"
      "data: unfinished";
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    std::vector<std::string> events;
    EventReader reader([&](std::string_view data) { events.emplace_back(data); });
    for (size_t i = 0; i < stream.size(); i += piece) {
      reader.Take(std::string_view(stream).substr(i, piece));
    }
    EXPECT_THAT(events, ElementsAre("{\"a\": 1}", "two\nlines", "[DONE]"));
  }
  EventReader endless([](std::string_view) {});
  EXPECT_THROW(for (int i = 0; i < 100; ++i) endless.Take(std::string(1 << 16, 'x')), Error);
}

TEST(WireTest, MetricsAreReadAndJunkIsLeftOut) {
  const auto values = ParseMetrics(
      "# HELP a b\na 1\nb{c=\"d e\"} 2.5e3\nhearth_memory_bytes{purpose=\"x\"} 5\n"
      "hearth_memory_bytes{purpose=\"y\"} 7\nhearth_resident_bytes 12\nbad\nbad x\n 3\nlast 4");
  EXPECT_EQ(values.at("a"), 1);
  EXPECT_EQ(values.at("b{c=\"d e\"}"), 2500);
  EXPECT_EQ(values.at("last"), 4);
  EXPECT_EQ(values.size(), 6u);
  const auto series = SeriesOf(values);
  EXPECT_EQ(series.at("ledger_bytes"), 12);
  EXPECT_EQ(series.at("resident_bytes"), 12);
}

TEST(WorkloadTest, TheSameSeedAsksTheSame) {
  WorkloadOptions options;
  options.tokens = {3, 9};
  options.shared_prefix_words = 20;
  Workload one(options, 1), same(options, 1), other(options, 2);
  std::string prefix;
  bool differs = false;
  for (int i = 0; i < 50; ++i) {
    const auto request = one.Next();
    EXPECT_EQ(request.body, same.Next().body);
    differs = differs || request.body != other.Next().body;
    const auto body = nlohmann::json::parse(request.body);
    EXPECT_GE(body["max_tokens"], 3);
    EXPECT_LE(body["max_tokens"], 9);
    const std::string text = body["messages"][0]["content"];
    const size_t words = static_cast<size_t>(std::count(text.begin(), text.end(), ' ')) + 1;
    EXPECT_GE(words, 5u + 20 + 8);
    EXPECT_LE(words, 5u + 20 + 64);
    if (prefix.empty()) prefix = text.substr(0, 60);
    EXPECT_EQ(text.substr(0, 60), prefix);
  }
  EXPECT_TRUE(differs);
  options.is_chat = false;
  EXPECT_EQ(Workload(options, 0).Next().path, "/v1/completions");
}

TEST(WorkloadTest, RangesAreChecked) {
  EXPECT_EQ(ParseRange("--x", "32", 1, 100).most, 32);
  EXPECT_EQ(ParseRange("--x", "8-64", 1, 100).least, 8);
  for (const char* bad : {"", "-", "8-", "-8", "9-8", "0", "101", "1-101", "x", "1 2", "1-2-3"}) {
    EXPECT_THROW(ParseRange("--x", bad, 1, 100), Error) << bad;
  }
}

TEST(WatchTest, AProcessIsSeenAndAMissingOneIsNot) {
  const auto self = SeriesOfProcess(getpid());
  EXPECT_GT(self.at("process_rss_bytes"), 1 << 20);
  EXPECT_GE(self.at("process_threads"), 1);
  EXPECT_GE(self.at("process_open_files"), 3);
  EXPECT_TRUE(SeriesOfProcess(1 << 30).empty());
}

}  // namespace
}  // namespace hearth::load
