#include "pipeline/lookahead.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace hearth {
namespace {

// Tokens of `seconds` with it and 1 s without; how many had it.
int RunTokens(LookaheadTrial& trial, int64_t tokens, double seconds) {
  int on = 0;
  for (int64_t i = 0; i < tokens; ++i) {
    const bool is_on = trial.is_on();
    on += is_on ? 1 : 0;
    trial.EndToken(is_on ? seconds : 1.0);
  }
  return on;
}

constexpr int64_t kTrial = 2 * LookaheadTrial::kPairsOfTrial;

TEST(LookaheadTrialTest, KeepsWhatIsFaster) {
  LookaheadTrial trial(Lookahead::kAuto);
  EXPECT_EQ(RunTokens(trial, kTrial, 0.9), LookaheadTrial::kPairsOfTrial);
  EXPECT_EQ(RunTokens(trial, LookaheadTrial::kFewestTokensKept, 0.9),
            LookaheadTrial::kFewestTokensKept);
  // It does not win any more.
  EXPECT_EQ(RunTokens(trial, kTrial, 1.01), LookaheadTrial::kPairsOfTrial);
  EXPECT_EQ(RunTokens(trial, 2 * LookaheadTrial::kFewestTokensKept, 1.01), 0);
  EXPECT_EQ(RunTokens(trial, kTrial, 0.9), LookaheadTrial::kPairsOfTrial);
  EXPECT_TRUE(trial.is_on());
}

TEST(LookaheadTrialTest, NeighboursAreComparedWhateverTheTextIsAbout) {
  for (const double seconds : {0.95, 1.05}) {
    LookaheadTrial trial(Lookahead::kAuto);
    // Tokens take longer and longer, and much longer where the topic changes.
    double of_text = 1;
    for (int64_t i = 0; i < kTrial; ++i) {
      of_text *= i % 6 == 0 ? 1.7 : 1.001;
      trial.EndToken(of_text * (trial.is_on() ? seconds : 1.0));
    }
    EXPECT_EQ(trial.is_on(), seconds < 1);
  }
}

// Pairs of which the first `lost` are slower with it.
void RunPairs(LookaheadTrial& trial, int lost) {
  for (int i = 0; i < kTrial; ++i) {
    trial.EndToken(trial.is_on() && i / 2 < lost ? 1.5 : trial.is_on() ? 0.99 : 1.0);
  }
}

TEST(LookaheadTrialTest, WhatWasDecidedStandsUntilMostPairsSayOtherwise) {
  constexpr int kLost = LookaheadTrial::kPairsToWin;
  constexpr int kWon = LookaheadTrial::kPairsOfTrial - kLost;
  int64_t kept = LookaheadTrial::kFewestTokensKept;
  LookaheadTrial trial(Lookahead::kAuto);
  const auto is_on_after = [&](int lost) {
    RunPairs(trial, lost);
    const bool is_on = trial.is_on();
    EXPECT_EQ(RunTokens(trial, kept, 1.0), is_on ? kept : 0);
    kept *= 2;
    return is_on;
  };
  EXPECT_TRUE(is_on_after(kLost - 1));  // as it is at first
  EXPECT_FALSE(is_on_after(kLost));
  EXPECT_FALSE(is_on_after(kWon + 1));
  EXPECT_TRUE(is_on_after(kWon));
  EXPECT_TRUE(is_on_after(kLost - 1));
}

TEST(LookaheadTrialTest, PassesAreComparedWithThoseOfAsManySequences) {
  for (const double seconds : {0.95, 1.05}) {
    LookaheadTrial trial(Lookahead::kAuto);
    // Of six passes the last two are the only neighbours that are compared. Compared as they come
    // the eight pairs would decide nothing, as what has fewer sequences is faster.
    for (int64_t i = 0; i < 6 * LookaheadTrial::kPairsOfTrial; ++i) {
      const int64_t sequences = i % 3 == 0 ? 2 : 3;
      trial.EndToken(static_cast<double>(sequences) * (trial.is_on() ? seconds : 1.0), sequences);
    }
    EXPECT_EQ(RunTokens(trial, LookaheadTrial::kFewestTokensKept, seconds),
              seconds < 1 ? LookaheadTrial::kFewestTokensKept : 0);
  }
}

TEST(LookaheadTrialTest, APassThatIsNotComparedIsTriedAgain) {
  LookaheadTrial trial(Lookahead::kAuto);
  const bool first = trial.is_on();
  trial.EndToken(1, 4);
  EXPECT_NE(trial.is_on(), first);
  trial.EndToken(1, 5);  // the pair begins anew
  EXPECT_EQ(trial.is_on(), first);
  trial.EndToken(1, 5);
  trial.EndToken(1, 5);
  EXPECT_NE(trial.is_on(), first) << "the next pair begins the other way round";
}

TEST(LookaheadTrialTest, TriesLessAndLessOften) {
  LookaheadTrial trial(Lookahead::kAuto);
  int64_t kept = LookaheadTrial::kFewestTokensKept;
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(RunTokens(trial, kTrial, 2.0), LookaheadTrial::kPairsOfTrial);
    EXPECT_EQ(RunTokens(trial, kept, 2.0), 0) << i;
    kept = std::min(2 * kept, LookaheadTrial::kMostTokensKept);
  }
}

TEST(LookaheadTrialTest, DoesAsItIsTold) {
  LookaheadTrial on(Lookahead::kOn), off(Lookahead::kOff);
  EXPECT_EQ(RunTokens(on, 100, 9.0), 100);
  EXPECT_EQ(RunTokens(off, 100, 0.1), 0);
}

TEST(LookaheadTest, HasNames) {
  for (const Lookahead lookahead : AllLookaheads()) {
    EXPECT_EQ(LookaheadFromName(LookaheadName(lookahead)), lookahead);
  }
  EXPECT_FALSE(LookaheadFromName("maybe"));
}

}  // namespace
}  // namespace hearth
