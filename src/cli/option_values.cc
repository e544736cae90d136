#include "cli/option_values.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>

#include "base/units.h"

namespace hearth::cli {
namespace {

// From here on a power of two is easier to read as one.
constexpr int64_t kLeastNamedPower = int64_t{1} << 24;

std::string BoundText(int64_t bound) {
  const auto bits = static_cast<uint64_t>(bound);
  if (bound < kLeastNamedPower || !std::has_single_bit(bits)) return fmt::format("{}", bound);
  return fmt::format("2^{}", std::countr_zero(bits));
}

}  // namespace

CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](const std::string& value) {
        return value.empty() ? std::string("expected a value, found ''") : std::string();
      },
      "", "not empty");
}

CLI::Validator WholeIn(int64_t least, int64_t most) {
  return CLI::Validator(
      [least, most](const std::string& text) {
        int64_t value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) {
          return std::string();
        }
        return fmt::format("expected a whole number from {} to {}, found '{}'", BoundText(least),
                           BoundText(most), Printable(text));
      },
      "", "whole number in range");
}

CLI::Validator NumberIn(double least, double most) {
  return CLI::Validator(
      [least, most](const std::string& text) {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) {
          return std::string();
        }
        return fmt::format("expected a number from {} to {}, found '{}'", least, most,
                           Printable(text));
      },
      "", "number in range");
}

CLI::Option* AddMemoryOption(CLI::App& command, std::optional<uint64_t>& bytes) {
  return command
      .add_option_function<std::string>(
          "--memory",
          [&bytes](const std::string& text) {
            bytes = AsUsage([&] { return ParseSize(text, "--memory"); });
          },
          "most memory to use, like 2.5G (default: what is free)")
      ->option_text("SIZE");
}

CLI::Option* AddThreadsOption(CLI::App& command, int& threads) {
  return command.add_option("--threads", threads, "threads (default: one per processor)")
      ->option_text("N")
      ->check(WholeIn(1, 1024));
}

CLI::Option* AddSeedOption(CLI::App& command, uint64_t& seed, const std::string& description) {
  return command
      .add_option_function<std::string>(
          "--seed",
          [&seed](const std::string& text) {
            const char* end = text.data() + text.size();
            const auto [stop, error] = std::from_chars(text.data(), end, seed);
            if (error == std::errc() && stop == end) return;
            throw UsageError("--seed: expected a whole number from 0 to 2^64 - 1, found '" +
                             Printable(text) + "'");
          },
          description)
      ->option_text("S");
}

}  // namespace hearth::cli
