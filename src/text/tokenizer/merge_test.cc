#include "text/tokenizer/merge.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>

#include "text/tokenizer/pair_table.h"

namespace hearth {
namespace {

using Ids = std::vector<TokenId>;

Ids IdsOf(const std::vector<Symbol>& symbols) {
  Ids ids;
  for (const Symbol& symbol : symbols) ids.push_back(symbol.id);
  return ids;
}

std::vector<Symbol> SymbolsOf(const Ids& ids) {
  std::vector<Symbol> symbols;
  for (size_t i = 0; i < ids.size(); ++i) symbols.push_back({static_cast<uint32_t>(i), 1, ids[i]});
  return symbols;
}

// The definition, taken literally.
Ids SlowMerge(const PairTable& table, Ids ids) {
  for (;;) {
    Merge best;
    size_t at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const Merge merge = table.Find(ids[i], ids[i + 1]);
      if (merge.priority < best.priority) {
        best = merge;
        at = i;
      }
    }
    if (best.priority == Merge::kNever) return ids;
    ids[at] = best.id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// A merge table as training makes them: a pair's result is a new token, unique per text.
PairTable RandomTable(std::mt19937& random, int letters, int merges) {
  PairTable table(static_cast<size_t>(merges));
  std::vector<Ids> texts;  // of every token, in letters
  for (int i = 0; i < letters; ++i) texts.push_back({i});
  std::map<Ids, TokenId> by_text;
  for (int rank = 0; rank < merges; ++rank) {
    const auto left = static_cast<TokenId>(random() % texts.size());
    const auto right = static_cast<TokenId>(random() % texts.size());
    Ids text = texts[static_cast<size_t>(left)];
    const Ids& tail = texts[static_cast<size_t>(right)];
    text.insert(text.end(), tail.begin(), tail.end());
    if (text.size() > 12) continue;
    const auto [it, is_new] = by_text.emplace(text, static_cast<TokenId>(texts.size()));
    if (is_new) texts.push_back(text);
    // Few distinct priorities, so that ties occur.
    table.Insert(left, right, {static_cast<uint32_t>(random() % 40), it->second});
  }
  return table;
}

TEST(Merge, LongAndShortLoopsFollowTheDefinition) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int letters = 2 + static_cast<int>(random() % 4);
    const PairTable table = RandomTable(random, letters, 60);
    const auto find = [&table](const Symbol& a, const Symbol& b) { return table.Find(a.id, b.id); };
    Ids ids(random() % 80);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % static_cast<unsigned>(letters));
    const Ids expected = SlowMerge(table, ids);

    MergeScratch scratch;
    scratch.symbols = SymbolsOf(ids);
    merge_internal::MergeShort(find, scratch.symbols, scratch.pairs);
    ASSERT_EQ(IdsOf(scratch.symbols), expected);

    scratch.symbols = SymbolsOf(ids);
    merge_internal::LongMerger(find, &scratch).Run();
    ASSERT_EQ(IdsOf(scratch.symbols), expected);
  }
}

TEST(Merge, LeavesNothingAsItIs) {
  const auto find = [](const Symbol&, const Symbol&) { return Merge{}; };
  MergeScratch scratch;
  MergeSymbols(find, &scratch);
  EXPECT_TRUE(scratch.symbols.empty());
  scratch.symbols = SymbolsOf({3});
  MergeSymbols(find, &scratch);
  EXPECT_EQ(IdsOf(scratch.symbols), Ids{3});
}

TEST(PairTable, KeepsTheFirstAndFindsNothingElse) {
  PairTable table(3);
  table.Insert(1, 2, {5, 9});
  table.Insert(1, 2, {1, 8});
  table.Insert(0, 0, {6, 7});
  EXPECT_EQ(table.Find(1, 2).priority, 5u);
  EXPECT_EQ(table.Find(1, 2).id, 9);
  EXPECT_EQ(table.Find(0, 0).id, 7);
  EXPECT_EQ(table.Find(2, 1).priority, Merge::kNever);
  EXPECT_EQ(table.Find(-1, -1).priority, Merge::kNever);
  EXPECT_EQ(table.Find(-1, 2).priority, Merge::kNever);
}

TEST(PairTable, HoldsManyPairs) {
  constexpr int kPairs = 20000;
  PairTable table(kPairs);
  for (int i = 0; i < kPairs; ++i) table.Insert(i % 300, i, {static_cast<uint32_t>(i), i + 1});
  for (int i = 0; i < kPairs; ++i) ASSERT_EQ(table.Find(i % 300, i).id, i + 1);
}

}  // namespace
}  // namespace hearth
