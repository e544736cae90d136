// How `hearth help` looks.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace hearth::cli {

// Formatter for the program and its commands: "--threads N", not type names and ranges.
std::shared_ptr<CLI::Formatter> MakeHelpFormatter();

// Help of the program itself, or of one command.
std::string HelpText(const CLI::App& app);

}  // namespace hearth::cli
