// Contexts of an engine that grow, fork, are cut, cancelled and restored; for tests that hold one
// engine against another.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "pass/test_passes.h"

namespace hearth {

// The contexts of one engine.
class Contexts {
 public:
  Contexts(Engine& engine, size_t count) : engine_(engine) {
    for (size_t i = 0; i < count; ++i) kv_.emplace_back(engine.kv_pool());
  }

  int64_t length(size_t context) const { return kv_[context].length(); }
  void Cut(size_t context, int64_t length) { kv_[context].Truncate(length); }
  void Fork(size_t from, size_t to) { kv_[to] = kv_[from].Fork(); }

  // Returns the logits of the last token.
  std::vector<float> Extend(size_t context, std::span<const TokenId> tokens) {
    const BatchSequence sequence{&kv_[context], tokens};
    engine_.pass().Run(ShapeOf(sequence),
                       tokens.size() > 1 ? engine_.prefill_selector() : engine_.selector());
    return LogitsOf(std::ssize(tokens) - 1, 1);
  }

  // One token of every context in one pass. Returns the logits of all.
  std::vector<float> ExtendAll(std::span<const TokenId> tokens) {
    std::vector<BatchSequence> batch;
    for (size_t i = 0; i < kv_.size(); ++i) batch.push_back({&kv_[i], tokens.subspan(i, 1)});
    engine_.pass().Run({PassKind::kDecode, batch}, engine_.selector());
    return LogitsOf(0, std::ssize(batch));
  }

  // A pass that ends before a layer: the context stays as it was.
  void ExtendAndCancel(size_t context, std::span<const TokenId> tokens, int64_t layer) {
    const int64_t before = length(context);
    engine_.pass().StopWhen([&layer] { return layer-- == 0; });
    try {
      Extend(context, tokens);
      ADD_FAILURE() << "the pass went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCancelled);
    }
    engine_.pass().StopWhen({});
    EXPECT_EQ(length(context), before);
  }

  // Gives up the context's pages and writes their bytes into others, as a restored session does.
  void Restore(size_t context) {
    KvPool& pool = engine_.kv_pool();
    KvSequence& kv = kv_[context];
    const int64_t tokens = kv.length();
    std::vector<std::vector<std::byte>> saved;
    for (const KvPageId page : kv.page_ids()) {
      pool.CopyOut(page, 0, saved.emplace_back(pool.layout().page_bytes()));
    }
    kv.Truncate(0);
    kv.AppendSaved(tokens);
    for (size_t i = 0; i < saved.size(); ++i) {
      // In pieces, as files are read.
      const size_t middle = saved[i].size() / 3;
      const std::span<const std::byte> bytes(saved[i]);
      pool.CopyIn(kv.page_ids()[i], 0, bytes.first(middle));
      pool.CopyIn(kv.page_ids()[i], middle, bytes.subspan(middle));
    }
  }

 private:
  std::vector<float> LogitsOf(int64_t first, int64_t count) {
    const FloatView rows = engine_.pass().Logits(first, count);
    std::vector<float> all;
    for (int64_t i = 0; i < count; ++i) {
      all.insert(all.end(), rows.row(i), rows.row(i) + rows.cols);
    }
    return all;
  }

  Engine& engine_;
  std::vector<KvSequence> kv_;
};

// What happens to contexts, at random.
struct ContextSteps {
  size_t contexts = 1;
  int64_t most_tokens = 64;  // of a pass
  uint32_t seed = 9;
};

// The same happens to contexts of two engines, whose logits must be the same bits.
class ContextPair {
 public:
  ContextPair(Engine& expected, Engine& found, const ContextSteps& steps)
      : steps_(steps),
        layers_(expected.model().spec().num_layers),
        most_(expected.context()),
        expected_(expected, steps.contexts),
        found_(found, steps.contexts),
        random_(steps.seed) {}

  void Step() {
    const size_t context = PickContext(), other = PickContext();
    const int64_t length = expected_.length(context);
    const int64_t count =
        std::min(Pick(1) == 0 ? 8 + Pick(steps_.most_tokens - 8) : int64_t{1}, most_ - length);
    const int64_t layer = Pick(layers_ - 1);
    switch (Pick(9)) {
      case 0:
        return DoBoth([&](Contexts& contexts) { contexts.Fork(context, other); });
      case 1:
        return DoBoth([&](Contexts& contexts) { contexts.Restore(context); });
      case 2: {
        const int64_t keep = Pick(length);
        return DoBoth([&](Contexts& contexts) { contexts.Cut(context, keep); });
      }
      case 3:
      case 4:
        return Cancel(context, count, layer);
      case 5:
        return ExtendAll();
      default:
        return Extend(context, count);
    }
  }

  void Extend(size_t context, int64_t count) {
    if (count < 1) return;
    const std::vector<TokenId> tokens = RandomTokens(count);
    ASSERT_EQ(found_.Extend(context, tokens), expected_.Extend(context, tokens));
  }

  void ExtendAll() {
    for (size_t i = 0; i < steps_.contexts; ++i) {
      if (expected_.length(i) == most_) return;
    }
    const std::vector<TokenId> tokens = RandomTokens(static_cast<int64_t>(steps_.contexts));
    ASSERT_EQ(found_.ExtendAll(tokens), expected_.ExtendAll(tokens));
  }

 private:
  int64_t Pick(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random_); }
  size_t PickContext() {
    return static_cast<size_t>(Pick(static_cast<int64_t>(steps_.contexts) - 1));
  }
  std::vector<TokenId> RandomTokens(int64_t count) {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(3 + Pick(590)));
    return tokens;
  }
  template <typename Change>
  void DoBoth(const Change& change) {
    change(expected_);
    change(found_);
  }
  void Cancel(size_t context, int64_t count, int64_t layer) {
    if (count < 1) return;
    const std::vector<TokenId> tokens = RandomTokens(count);
    DoBoth([&](Contexts& contexts) { contexts.ExtendAndCancel(context, tokens, layer); });
  }

  const ContextSteps steps_;
  const int64_t layers_, most_;
  Contexts expected_, found_;
  std::mt19937 random_;
};

}  // namespace hearth
