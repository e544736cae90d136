// Where a command's text comes from.
#pragma once

#include <string>

namespace hearth::cli {

// The whole file, byte for byte; of "-" standard input. Streams are read to their end. Throws
// Error(kNotFound/kIo) and refuses texts over 1 GiB.
std::string ReadTextFile(const std::string& path);

// Everything on standard input.
std::string ReadStandardInput();

bool StandardInputIsTerminal();
bool StandardOutputIsTerminal();

}  // namespace hearth::cli
