// That reading and computing overlap (P2 §4.3), without a clock: a file that hands nothing back
// before somebody sleeps for it shows what was done until then.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "pipeline/test_bundles.h"
#include "storage/async/file_decorator.h"

namespace hearth {
namespace {

struct Watcher {
  std::function<void()> on_sleep;     // before the first Wait after reads were submitted
  std::vector<uint64_t> offsets;      // of all reads that were submitted
  std::set<std::thread::id> threads;  // that submitted or waited for any
};

// Hands completions back to who waits, and to who polls once somebody has waited.
class WatchedQueue : public ReadQueue {
 public:
  WatchedQueue(std::unique_ptr<ReadQueue> inner, Watcher& watcher)
      : inner_(std::move(inner)), watcher_(watcher) {}

  int depth() const noexcept override { return inner_->depth(); }
  size_t capacity() const noexcept override { return inner_->capacity(); }
  size_t in_flight() const noexcept override { return inner_->in_flight(); }
  size_t Submit(std::span<const ReadRequest> requests) noexcept override {
    for (const ReadRequest& request : requests) watcher_.offsets.push_back(request.offset);
    watcher_.threads.insert(std::this_thread::get_id());
    has_slept_ = false;
    return inner_->Submit(requests);
  }
  void WithdrawGuesses() noexcept override { inner_->WithdrawGuesses(); }
  size_t Poll(std::span<ReadCompletion> completions) noexcept override {
    return has_slept_ ? inner_->Poll(completions) : 0;
  }
  size_t Wait(std::span<ReadCompletion> completions) noexcept override {
    if (!has_slept_ && watcher_.on_sleep) watcher_.on_sleep();
    watcher_.threads.insert(std::this_thread::get_id());
    has_slept_ = true;
    return inner_->Wait(completions);
  }

 private:
  const std::unique_ptr<ReadQueue> inner_;
  Watcher& watcher_;
  bool has_slept_ = false;
};

class WatchedFile : public FileDecorator {
 public:
  WatchedFile(std::unique_ptr<AsyncFile> inner, Watcher& watcher)
      : FileDecorator(std::move(inner)), watcher_(watcher) {}
  std::unique_ptr<ReadQueue> OpenQueue(const QueueOptions& options) override {
    return std::make_unique<WatchedQueue>(inner().OpenQueue(options), watcher_);
  }

 private:
  Watcher& watcher_;
};

class OverlapTest : public StreamedFfnsTest {
 protected:
  // The pinned half of an FFN is listed, and the other half, which is read.
  static constexpr int64_t kNeurons = 1024, kPinned = 512;

  std::unique_ptr<StreamedFfns> Open(const TestBundles& model, const StreamOptions& options) {
    auto streamed = std::make_unique<StreamedFfns>(
        budget_, model.Source(std::make_unique<WatchedFile>(model.File(budget_, 0), watcher_)),
        StreamPlan{
            .pinned_neurons = kPinned, .cache_slots = 1, .range_neurons = 128, .range_buffers = 3},
        options);
    streamed->Fill(*compute_, {});
    watcher_.offsets.clear();
    return streamed;
  }

  static ProcessorShareOptions NeverLoaded() {
    return {.run_delay = [] { return std::optional<double>(); }};
  }

  Watcher watcher_;
};

TEST_F(OverlapTest, WhatIsHereIsComputedWhileTheRestIsRead) {
  const TestBundles model({.layers = 1, .neurons = kNeurons}, 1);
  const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
  const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
  std::vector<int32_t> list(kNeurons);
  std::iota(list.begin(), list.end(), 0);
  compute_.emplace(isa_, 1);  // a second thread would sleep while the first one computes
  const std::vector<float> of_pinned = Resident(model, ffn, x, std::span(list).first(kPinned));
  const std::vector<float> none(x.size());
  for (const PipelineKind kind : {PipelineKind::kCluster, PipelineKind::kBlocking}) {
    for (const bool gates_first : {false, true}) {
      const auto streamed = Open(model, {.pipeline = kind, .gates_first = gates_first});
      std::vector<float> out(x.size()), seen;
      watcher_.on_sleep = [&] {
        if (seen.empty()) seen = out;
      };
      streamed->Run(*compute_, ffn, x.data(), list, true, out.data());
      watcher_.on_sleep = nullptr;
      EXPECT_EQ(out, Resident(model, ffn, x, list));
      EXPECT_EQ(seen, kind == PipelineKind::kCluster ? of_pinned : none) << PipelineName(kind);
    }
  }
}

// A reading thread (P2 §5.1, c_io) makes every read itself, also those of the second halves of
// neurons that other threads find firing.
TEST_F(OverlapTest, AThreadOfItsOwnReadsEverything) {
  const TestBundles model({.layers = 1, .neurons = kNeurons}, 1);
  const StreamedFfn ffn = {0, 0, FfnActivation::kRelu};
  std::vector<int32_t> list(kNeurons);
  std::iota(list.begin(), list.end(), 0);
  for (const int threads : {1, 2, 4}) {
    compute_.emplace(isa_, threads);
    for (const bool gates_first : {false, true}) {
      const auto streamed = Open(model, {.lookahead = Lookahead::kOff,
                                         .gates_first = gates_first,
                                         .io_thread = IoThread::kOwn,
                                         .processors = NeverLoaded()});
      watcher_.threads.clear();
      for (int token = 0; token < 20; ++token) {
        const std::vector<float> x = RandomFloats(model.sizes().hidden, random_);
        std::vector<float> out(x.size());
        streamed->Run(*compute_, ffn, x.data(), list, true, out.data());
        EXPECT_EQ(out, Resident(model, ffn, x, list));
      }
      EXPECT_EQ(watcher_.threads, std::set{std::this_thread::get_id()});
    }
  }
}

// Prompts: while the last ranges of an FFN are computed, the first ones of the next are read.
TEST_F(OverlapTest, RangesOfTheNextFfnAreReadBeforeItBegins) {
  const TestBundles model({.layers = 2, .neurons = kNeurons}, 1);
  const auto streamed = Open(model, {});
  const uint64_t next_ffn = model.OffsetOf(1, 0);
  int64_t left = kNeurons;
  streamed->ForEachRange(
      *compute_, {0, 0, FfnActivation::kRelu}, RangeRows::kInOrder,
      [&](int64_t, const FfnNeurons& rows) {
        left -= rows.up.rows;
        if (left > 0) return;
        EXPECT_GT(*std::max_element(watcher_.offsets.begin(), watcher_.offsets.end()), next_ffn);
      });
  EXPECT_EQ(left, 0);
}

// Tokens that are decoded from all neurons: the next one begins with what is there already. A
// prompt reads nothing that it does not need.
TEST_F(OverlapTest, RangesOfTheNextTokenAreReadBeforeItBegins) {
  for (const int64_t layers : {1, 2, 3}) {
    const TestBundles model({.layers = layers, .neurons = kNeurons}, 1);
    const auto streamed = Open(model, {});
    // All FFNs in order; returns what was read of the first one after the last had begun.
    const auto pass = [&](int64_t decoded) {
      streamed->BeginPass(decoded);
      for (int64_t layer = 0; layer < layers; ++layer) {
        const StreamedFfn ffn = {layer, 0, FfnActivation::kRelu};
        if (layer + 1 == layers) watcher_.offsets.clear();
        int64_t neurons = 0;
        streamed->ForEachRange(*compute_, ffn, RangeRows::kInOrder,
                               [&](int64_t first, const FfnNeurons& rows) {
                                 ExpectNeurons(rows, model.Resident(ffn), first);
                                 neurons += rows.up.rows;
                               });
        EXPECT_EQ(neurons, kNeurons);
      }
      streamed->EndToken();
      return std::count_if(watcher_.offsets.begin(), watcher_.offsets.end(),
                           [&](uint64_t offset) { return offset < model.OffsetOf(0, kNeurons); });
    };
    EXPECT_EQ(pass(0) > 0, layers == 1);
    const uint64_t of_prompt = streamed->range_counts().bytes_read;
    for (int token = 1; token <= 4; ++token) {
      EXPECT_EQ(pass(1) > 0, true) << layers;
      const uint64_t ahead = streamed->range_counts().bytes_read - (1 + token) * of_prompt;
      EXPECT_EQ(ahead > 0, layers > 1) << token;
      EXPECT_LE(ahead, streamed->store().plan().spare_bytes(model.shape())) << token;
    }
  }
}

}  // namespace
}  // namespace hearth
