#include "cli/options/option_values.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/help_format.h"
#include "tensor/kv_layout.h"

namespace hearth::cli {
namespace {

// From here on a power of two is easier to read as one.
constexpr int64_t kLeastNamedPower = int64_t{1} << 24;

std::string BoundText(int64_t bound) {
  const auto bits = static_cast<uint64_t>(bound);
  if (bound < kLeastNamedPower || !std::has_single_bit(bits)) return fmt::format("{}", bound);
  return fmt::format("2^{}", std::countr_zero(bits));
}

template <typename Number>
CLI::Validator InRange(Number least, Number most, const char* noun, const std::string& bounds) {
  return CLI::Validator(
      [least, most, noun, bounds](const std::string& text) {
        Number value = 0;
        const bool is_number = CLI::detail::lexical_cast(text, value);
        if (is_number && value >= least && value <= most) return std::string();
        return fmt::format("expected a {} from {}, found '{}'", noun, bounds, Printable(text));
      },
      "", std::string(noun) + " in range");
}

}  // namespace

CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](const std::string& value) {
        return value.empty() ? std::string("expected a value, found ''") : std::string();
      },
      "", "not empty");
}

CLI::Option* AddFileOption(CLI::App& command, const std::string& name, std::string& path,
                           const std::string& what) {
  return command.add_option(name, path, what)->option_text("FILE")->check(NotEmpty());
}

CLI::Validator WholeIn(int64_t least, int64_t most) {
  return InRange(least, most, "whole number",
                 fmt::format("{} to {}", BoundText(least), BoundText(most)));
}

CLI::Validator NumberIn(double least, double most) {
  return InRange(least, most, "number", fmt::format("{} to {}", least, most));
}

CLI::Option* AddSizeOption(CLI::App& command, const std::string& name,
                           std::optional<uint64_t>& bytes, const std::string& what) {
  return command
      .add_option_function<std::string>(
          name,
          [&bytes, name](const std::string& text) {
            bytes = AsUsage([&] { return ParseSize(text, name); });
          },
          what)
      ->option_text("SIZE");
}

CLI::Option* AddMemoryOption(CLI::App& command, std::optional<uint64_t>& bytes) {
  return AddSizeOption(command, "--memory", bytes,
                       "most memory to use, like 2.5G (what is free, less a margin)")
      ->group(kMemoryGroup);
}

void AddKvMemoryOptions(CLI::App& command, std::optional<uint64_t>& bytes, std::string& folder) {
  AddSizeOption(command, "--kv-memory", bytes,
                "most memory for the KV cache; the rest of a long context lies in a file (what "
                "--memory leaves after the weights)")
      ->group(kMemoryGroup);
  command
      .add_option("--kv-dir", folder,
                  "folder of that file, which no folder lists and which ends with the program "
                  "($TMPDIR, else /var/tmp)")
      ->option_text("DIR")
      ->group(kMemoryGroup)
      ->check(NotEmpty());
}

CLI::Option* AddThreadsOption(CLI::App& command, int& threads) {
  return command.add_option("--threads", threads, "threads (one per processor)")
      ->option_text("N")
      ->group(kMemoryGroup)
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

CLI::Option* AddKvOption(CLI::App& command, std::string& name) {
  std::vector<std::string> names;
  for (const KvCodecInfo& codec : kKvCodecs) names.emplace_back(codec.name);
  return command.add_option("--kv", name, "how the KV cache is stored (f16)")
      ->option_text(kKvCodecNames)
      ->check(CLI::IsMember(names));
}

}  // namespace hearth::cli
