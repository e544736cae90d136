#include "cli/option_values.h"

#include <charconv>

#include "base/units.h"

namespace hearth::cli {

CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](const std::string& value) {
        return value.empty() ? std::string("expected a value, found ''") : std::string();
      },
      "", "not empty");
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
      ->check(CLI::Range(1, 1024));
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
