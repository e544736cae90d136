// Whether reading ahead pays (DESIGN section 7): what it costs and brings depends on the disk, the
// model and the memory, so that it is tried, and left alone where it does not win.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace hearth {

enum class Lookahead : uint8_t { kOff, kAuto, kOn };
std::span<const Lookahead> AllLookaheads();
const char* LookaheadName(Lookahead lookahead);  // "off", "auto", "on"
std::optional<Lookahead> LookaheadFromName(std::string_view name);

// Decides token by token. With kAuto tokens are computed with and without it in turn, the medians
// of their times compared, and the faster way kept for a while, twice as long every time. Results
// do not depend on what it decides. One thread at a time.
class LookaheadTrial {
 public:
  explicit LookaheadTrial(Lookahead lookahead);

  // Whether the next token looks ahead.
  bool is_on() const;
  // A token was computed so.
  void EndToken(double seconds);

  // Tokens of a trial with it, and as many without.
  static constexpr int kTokensOfTrial = 16;
  static constexpr int64_t kFewestTokensKept = 128;
  static constexpr int64_t kMostTokensKept = 4096;

 private:
  const Lookahead lookahead_;
  bool keeps_ = false;  // what the last trial decided
  bool decision_ = false;
  int64_t tokens_left_ = 0;  // to keep it for
  int64_t next_keep_ = kFewestTokensKept;
  std::vector<double> with_, without_;  // seconds of the trial's tokens
};

}  // namespace hearth
