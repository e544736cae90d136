// Messages that a person types or pastes on a terminal.
#pragma once

#include <memory>
#include <string>

namespace hearth::cli {

// An editor with arrow keys, history and pasted text of several lines as one message, of any length
// (libedit). It draws on standard error and reads standard input, which must be a terminal. Call
// CatchInterrupts (cli/screen/interrupts.h) before. One thread.
class LineEditor {
 public:
  enum class Result { kMessage, kInterrupted, kEnd };

  // `history_path`: where messages are kept for later runs, readable by their owner alone; empty:
  // nowhere. A history that cannot be read or written is left out.
  LineEditor(const std::string& prompt, const std::string& history_path);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Waits for the next message, UTF-8 without its end. A line that begins with """ begins a message
  // of several lines, which ends with the next """. Ctrl-C yields kInterrupted and drops what was
  // typed; Ctrl-D on an empty line yields kEnd. Throws Error(kIo).
  Result Read(std::string& message);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// $XDG_STATE_HOME/hearth/history, or ~/.local/state/hearth/history; empty where the environment
// names neither.
std::string ChatHistoryPath();

}  // namespace hearth::cli
