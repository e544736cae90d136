// Ctrl-C, and lines of input for the chat.
#pragma once

#include <atomic>
#include <string>

namespace hearth::cli {

// From now on Ctrl-C no longer ends the program: it sets the flag that InterruptFlag returns and
// wakes LineReader::Read. With `also_terminate` the same goes for SIGTERM and, unless it is
// ignored, SIGHUP.
void CatchInterrupts(bool also_terminate = false);
const std::atomic<bool>& InterruptFlag();
// Forgets a Ctrl-C that has been acted upon.
void ClearInterrupt();
// After a Ctrl-C throws Error(kCancelled, where) that says that nothing was written.
void StopWhereInterrupted(const std::string& where);

// Lines of standard input. Call CatchInterrupts before.
class LineReader {
 public:
  enum class Result { kLine, kInterrupted, kEnd };

  // Waits for the next line (without its end). A Ctrl-C, also one that came just before the call,
  // yields kInterrupted and drops what was typed. Throws Error(kIo).
  Result Read(std::string& line);

 private:
  std::string pending_;  // read, but not yet returned
};

}  // namespace hearth::cli
