// Where a command's text comes from.
#pragma once

#include <string>

namespace hearth::cli {

// The whole file, byte for byte; of "-" standard input. Throws Error(kNotFound/kIo) and refuses
// files over 1 GiB.
std::string ReadTextFile(const std::string& path);

// Everything on standard input.
std::string ReadStandardInput();

bool StandardInputIsTerminal();
bool StandardOutputIsTerminal();

}  // namespace hearth::cli
