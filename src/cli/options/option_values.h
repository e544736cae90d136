// Values of options: what CLI11 would let pass, or refuse with the wrong exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/screen/output.h"

namespace hearth::cli {

// Calls `parse`; a value that it refuses as senseless is wrong usage.
template <typename Parse>
auto AsUsage(Parse&& parse) {
  try {
    return std::forward<Parse>(parse)();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInvalidArgument) throw UsageError(Sentence(error));
    throw;
  }
}

// Refuses ''.
CLI::Validator NotEmpty();

// Adds an option that takes the path of a file, which may not be empty. `path` must live as long as
// the command.
CLI::Option* AddFileOption(CLI::App& command, const std::string& name, std::string& path,
                           const std::string& what);

// A whole number from `least` to `most`; any number from `least` to `most`, which NaN is not.
CLI::Validator WholeIn(int64_t least, int64_t most);
CLI::Validator NumberIn(double least, double most);

// An option that takes a size like 2.5G. `bytes` must live as long as the command.
CLI::Option* AddSizeOption(CLI::App& command, const std::string& name,
                           std::optional<uint64_t>& bytes, const std::string& what);

// --memory, a size; --threads.
CLI::Option* AddMemoryOption(CLI::App& command, std::optional<uint64_t>& bytes);
CLI::Option* AddThreadsOption(CLI::App& command, int& threads);

// --kv-memory, a size, and --kv-dir.
void AddKvMemoryOptions(CLI::App& command, std::optional<uint64_t>& bytes, std::string& folder);

// --kv: the name of a KvCodec.
CLI::Option* AddKvOption(CLI::App& command, std::string& name);

// --seed: 0 to 2^64 - 1.
CLI::Option* AddSeedOption(CLI::App& command, uint64_t& seed, const std::string& description);

}  // namespace hearth::cli
