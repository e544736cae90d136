// Runs the hearth program on a terminal of its own, as someone who types.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace hearth {

class TerminalProgram {
 public:
  // The terminal does not echo; what is read comes without its "\r".
  explicit TerminalProgram(const std::vector<std::string>& arguments);
  ~TerminalProgram();  // kills it where it still runs
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;

  void Type(std::string_view bytes);

  // Reads on until `words` appears and returns what came before it, since the last such call.
  // Fails the test, and returns what came, where the program ends or a minute passes before.
  std::string ReadUntil(std::string_view words);

  // Reads until the program ends; its exit code, 128 + signal where it was killed. Fails the test
  // and kills it where it says nothing for a minute.
  int WaitForExit();

 private:
  bool ReadMore();  // false at the end, or after a minute of silence

  int terminal_ = -1;
  pid_t pid_ = -1;
  std::string unread_;  // came, but was not returned yet
};

}  // namespace hearth
