#include "cli/screen/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "base/units.h"
#include "cli/screen/output.h"

namespace hearth::cli {
namespace {

// Work shorter than this shows no line at all: a flash on the terminal helps nobody.
constexpr double kQuietSeconds = 0.5;
constexpr double kRedrawSeconds = 0.1;
constexpr double kShareSteps = 1000;

}  // namespace

std::string FormatDuration(double seconds) {
  const auto total = static_cast<int64_t>(seconds + 0.5);
  if (total >= 3600) {
    return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
  }
  return fmt::format("{}:{:02}", total / 60, total % 60);
}

ProgressLine::ProgressLine(std::string label, ProgressUnit unit, uint64_t already)
    : label_(std::move(label)),
      unit_(unit),
      already_(already),
      visible_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (drawn_) PrintNotice("\r\033[K");
}

void ProgressLine::Update(uint64_t done, uint64_t total, const std::string& note,
                          std::optional<double> eta_seconds) {
  if (!visible_ || total == 0) return;
  const Clock::time_point now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  if (elapsed < kQuietSeconds ||
      std::chrono::duration<double>(now - last_draw_).count() < kRedrawSeconds) {
    return;
  }
  last_draw_ = now;
  drawn_ = true;
  const double rate = static_cast<double>(done - already_) / elapsed;
  const double guess = rate > 0 ? static_cast<double>(total - done) / rate : 0;
  const double left = eta_seconds.value_or(guess);
  const std::string amount =
      unit_ == ProgressUnit::kBytes
          ? fmt::format("{} of {}, {}/s", FormatSize(done), FormatSize(total),
                        FormatSize(static_cast<uint64_t>(rate)))
      : unit_ == ProgressUnit::kTokens
          ? fmt::format("{} of {} tokens, {:.0f} tok/s", done, total, rate)
      : unit_ == ProgressUnit::kQuestions
          ? fmt::format("{} of {} questions, {:.1f}/s", done, total, rate)
          : FormatDuration(elapsed);
  PrintNotice(fmt::format("\r\033[K{} {:3.0f}%  {}, {} left{}{}", label_,
                          100.0 * static_cast<double>(done) / static_cast<double>(total), amount,
                          FormatDuration(left), note.empty() ? "" : "  ", note));
}

void ProgressLine::UpdateShare(double done, const std::string& note,
                               std::optional<double> eta_seconds) {
  Update(static_cast<uint64_t>(done * kShareSteps), static_cast<uint64_t>(kShareSteps), note,
         eta_seconds);
}

}  // namespace hearth::cli
