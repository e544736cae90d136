// What a person types in a chat besides messages: lines that begin with '/'.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cli/run/conversation.h"

namespace hearth::cli {

class ChatCommands {
 public:
  // `regenerate`: shows another answer to the last question. Both must outlive this.
  ChatCommands(Conversation& conversation, std::function<void()> regenerate);

  // True where `message` is a command ('/' and a name; a space before the '/' makes it a message).
  static bool IsCommand(std::string_view message);
  // Does what it says, with notices; a command that is unknown or fails changes nothing and says
  // why. False after /quit.
  bool Run(std::string_view command);

  // Remembers what /stats shows of an answer.
  void Remember(const GenerateResult& result) { last_ = result; }

 private:
  struct Command;
  static const Command* Find(std::string_view name);
  static const Command* Commands(size_t& count);

  void Help(const std::string& rest);
  void System(const std::string& rest);
  void Regenerate(const std::string& rest);
  void Undo(const std::string& rest);
  void Save(const std::string& rest);
  void Load(const std::string& rest);
  void Set(const std::string& rest);
  void Stats(const std::string& rest);

  Conversation& conversation_;
  std::function<void()> regenerate_;
  GenerateResult last_;
};

}  // namespace hearth::cli
