// Runs the hearth program as a user would, and keeps what it printed.
#pragma once

#include <string>
#include <vector>

namespace hearth {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal where it was killed
  std::string out;
  std::string err;
};

// Where the program's output goes: a path to open for writing, kClosed, or empty: into the result.
struct ProgramStreams {
  static constexpr char kClosed[] = "closed";
  std::string out;
  std::string err;
};

// Starts the program with these arguments; standard input is `input`. No terminal is attached.
ProgramResult RunHearth(const std::vector<std::string>& arguments, const std::string& input = "",
                        const ProgramStreams& streams = {});

}  // namespace hearth
