// What a command prints.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace hearth::cli {

// Writes all of `text` to standard output, also when signals arrive meanwhile. Throws Error(kIo)
// where nobody takes it (a closed pipe, a full disk).
void WriteOutput(std::string_view text);

// Writes to standard error as far as that takes it: what is said there (statistics, progress, the
// prompt of a chat) must never end a command that does its work.
void PrintNotice(std::string_view text) noexcept;

// The text in dim letters, where standard error is a terminal.
std::string Dim(std::string_view text);

// Writes "hearth: SENTENCE" as one line of standard error. It may quote the name of a file or an
// argument: control bytes, which a terminal would obey, become \xNN.
void PrintSentence(std::string_view sentence);

// What the command line calls the setting that an error is about, without the dashes; empty where
// it is about none.
std::string OptionName(const Error& error);
// An error in the words of the command line: a setting is its option (--top-p).
std::string Sentence(const Error& error);

// Opens /dev/null, in the direction that fails, where the program was started with standard input,
// output or error closed. Otherwise the next file opened would take the number, and what is meant
// for a terminal would go into it. For the start of main.
void KeepStandardStreams() noexcept;

}  // namespace hearth::cli
