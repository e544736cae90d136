// Texts that are read as a whole, of files and of what can be read only once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace hearth {

// Whether the path is read to its end instead of by its size: a pipe (a shell's "<(...)", or
// "/dev/stdin" after "|"), a terminal, another device.
bool IsStream(const std::string& path);

// What a text may be, and how it is called in messages.
struct TextLimit {
  uint64_t most_bytes = 0;
  std::string_view what;                              // "a shape file"
  ErrorCode too_large = ErrorCode::kInvalidArgument;  // of a longer one
};

// Returns all bytes of a regular file or a stream. Throws Error(kNotFound), Error(kIo), and the
// limit's code for a text that is longer.
std::string ReadText(const std::string& path, const TextLimit& limit);

// Returns what comes from an open file until its end. name: for messages.
std::string ReadStream(int fd, const std::string& name, const TextLimit& limit);

}  // namespace hearth
