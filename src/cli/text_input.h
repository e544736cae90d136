// Where a command's text comes from.
#pragma once

#include <string>
#include <string_view>

namespace hearth::cli {

// The whole file, byte for byte. Throws Error(kNotFound/kIo) and refuses files over 1 GiB.
std::string ReadTextFile(const std::string& path);

// Everything on standard input.
std::string ReadStandardInput();

bool StandardInputIsTerminal();

// Writes to standard output; throws Error(kIo) where nobody takes it (a closed pipe, a full disk).
void WriteOutput(std::string_view text);

}  // namespace hearth::cli
