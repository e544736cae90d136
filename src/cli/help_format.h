// How `hearth help` looks.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

namespace hearth::cli {

// Names of groups of options, in the order in which help shows them; a command's own options come
// first, in a group without a name of its own.
inline constexpr char kSamplingGroup[] = "Sampling";
inline constexpr char kServerGroup[] = "Server";
inline constexpr char kMemoryGroup[] = "Memory and speed";
inline constexpr char kExperimentGroup[] = "For experiments";

// Formatter for the program and its commands: "--threads N", not type names and ranges.
std::shared_ptr<CLI::Formatter> MakeHelpFormatter();

// Help of the program itself, or of one command, in lines of at most the terminal's width.
std::string HelpText(const CLI::App& app);

// The same for programs that complete words or write pages: a line for each command, option and
// example, its parts separated by tabs (kind, group, names, value, meaning).
std::string HelpTable(const CLI::App& app);

// The name among `names` that somebody who wrote `word` probably meant; empty where none is near.
std::string Nearest(const std::string& word, const std::vector<std::string>& names);

// One sentence about the words that a command line has too many of, with what was probably meant.
std::string ExplainExtras(const CLI::App& app);

}  // namespace hearth::cli
