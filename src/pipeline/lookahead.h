// Whether reading ahead pays: what it costs and brings depends on the disk, the model and the
// memory, so that it is tried, and left alone where it does not win.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace hearth {

enum class Lookahead : uint8_t { kOff, kAuto, kOn };
std::span<const Lookahead> AllLookaheads();
const char* LookaheadName(Lookahead lookahead);  // "off", "auto", "on"
std::optional<Lookahead> LookaheadFromName(std::string_view name);

// Decides token by token. With kAuto tokens are computed with and without it in pairs: neighbours,
// because what a token reads depends on what the text is about, which changes their times by more
// than looking ahead does. A way that is faster in most of the pairs is kept for a while, twice as
// long every time; where neither is, what was decided before stands, and first that it looks ahead:
// times of single tokens are noisy, and what is guessed while threads wait costs little. Where
// several sequences decode together, a pass is what a token is here; what is decided holds for any
// number of them. Results do not depend on what it decides. One thread at a time.
class LookaheadTrial {
 public:
  explicit LookaheadTrial(Lookahead lookahead);

  // Whether the next token looks ahead.
  bool is_on() const;
  // A pass was computed so, which decoded a token of each of so many sequences. The second pass of
  // a pair counts only where it is of as many as the first; otherwise the pair begins again.
  void EndToken(double seconds, int64_t sequences = 1);

  // Of a trial; a pair that begins without it follows one that begins with it.
  static constexpr int kPairsOfTrial = 8;
  // Of these pairs, as many as one way must win to be chosen: by chance alone one in seven trials
  // has so many for it.
  static constexpr int kPairsToWin = 6;
  static constexpr int64_t kFewestTokensKept = 128;
  static constexpr int64_t kMostTokensKept = 4096;

 private:
  const Lookahead lookahead_;
  bool keeps_ = false;    // what was decided, for tokens_left_ tokens
  bool decision_ = true;  // to look ahead
  int64_t tokens_left_ = 0;
  int64_t next_keep_ = kFewestTokensKept;
  double with_seconds_ = 0, without_seconds_ = 0;  // of the pair at hand
  int64_t sequences_ = 0;                          // of its first token
  int tokens_of_trial_ = 0;
  int won_ = 0;  // of the trial's pairs so far, those that were faster with it
};

}  // namespace hearth
