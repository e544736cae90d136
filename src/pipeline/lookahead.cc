#include "pipeline/lookahead.h"

#include <algorithm>

namespace hearth {

std::span<const Lookahead> AllLookaheads() {
  static constexpr std::array kAll = {Lookahead::kAuto, Lookahead::kOn, Lookahead::kOff};
  return kAll;
}

const char* LookaheadName(Lookahead lookahead) {
  switch (lookahead) {
    case Lookahead::kOff:
      return "off";
    case Lookahead::kAuto:
      return "auto";
    case Lookahead::kOn:
      return "on";
  }
  return "unknown";
}

std::optional<Lookahead> LookaheadFromName(std::string_view name) {
  for (const Lookahead lookahead : AllLookaheads()) {
    if (name == LookaheadName(lookahead)) return lookahead;
  }
  return std::nullopt;
}

LookaheadTrial::LookaheadTrial(Lookahead lookahead) : lookahead_(lookahead) {}

bool LookaheadTrial::is_on() const {
  if (lookahead_ != Lookahead::kAuto) return lookahead_ == Lookahead::kOn;
  if (keeps_) return decision_;
  const bool is_second = tokens_of_trial_ % 2 != 0, begins_with = tokens_of_trial_ / 2 % 2 == 0;
  return is_second != begins_with;
}

void LookaheadTrial::EndToken(double seconds, int64_t sequences) {
  if (lookahead_ != Lookahead::kAuto) return;
  if (keeps_) {
    keeps_ = --tokens_left_ > 0;
    return;
  }
  const bool is_second = tokens_of_trial_ % 2 != 0;
  if (is_second && sequences != sequences_) {
    --tokens_of_trial_;
    return;
  }
  (is_on() ? with_seconds_ : without_seconds_) = seconds;
  sequences_ = sequences;
  ++tokens_of_trial_;
  if (!is_second) return;
  won_ += with_seconds_ < without_seconds_ ? 1 : 0;
  if (tokens_of_trial_ < 2 * kPairsOfTrial) return;
  if (won_ >= kPairsToWin) decision_ = true;
  if (kPairsOfTrial - won_ >= kPairsToWin) decision_ = false;
  won_ = 0;
  tokens_of_trial_ = 0;
  keeps_ = true;
  tokens_left_ = next_keep_;
  next_keep_ = std::min(2 * next_keep_, kMostTokensKept);
}

}  // namespace hearth
