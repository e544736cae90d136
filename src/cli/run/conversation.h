// A conversation on the command line: what was said, the part of it that the context holds,
// answers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/session/session.h"
#include "text/chat/chat_template.h"

namespace hearth::cli {

// The format that was asked for, or the model's own template. Throws Error(kUnsupported) where
// there is neither.
ChatTemplate ChooseTemplate(const std::optional<ChatFormat>& format, const Model& model);

// Throws the same before a model is loaded, where its file has no template. For the start of a
// command: loading may take long.
void CheckTemplate(const std::optional<ChatFormat>& format, const std::string& model);

// One thread. The engine must outlive it.
class Conversation {
 public:
  // `system`: the system message, none where empty. Of `generate` the sampling, the stop texts and
  // max_tokens count.
  Conversation(Engine& engine, ChatTemplate chat_template, std::string system,
               const GenerateOptions& generate);

  // Asks the question and tells the answer to on_text as it comes, with a progress line for a long
  // prompt. Where the context is too small for all that was said, its oldest turns are left out,
  // with a notice. Nothing, with a notice, where not even the question fits.
  std::optional<GenerateResult> Ask(const std::string& question, const TextFn& on_text);
  // Answers the last question again. Throws Error(kInvalidArgument) where there is none.
  std::optional<GenerateResult> AskAgain(const TextFn& on_text);
  // Takes the last question and its answer out. False where there is none.
  bool Undo();
  // Begins anew with this system message; none where empty.
  void Restart(std::string system);

  const std::string& system() const { return system_; }
  // Without the system message, oldest first.
  const std::vector<ChatMessage>& turns() const { return turns_; }
  // Takes them over from elsewhere. Throws Error(kInvalidArgument) unless questions and answers
  // take turns and the last one is an answer.
  void Replace(std::string system, std::vector<ChatMessage> turns);

  GenerateOptions& generate() { return generate_; }
  const Engine& engine() const { return engine_; }
  // Tokens of the context that the conversation takes now.
  int64_t context_used() const { return std::ssize(session_.history()); }

 private:
  std::optional<GenerateResult> Answer(const TextFn& on_text);
  std::vector<TokenId> Prompt();
  std::vector<TokenId> Tokens(size_t first_turn) const;
  void KeepCommonPrefix(std::vector<TokenId>& tokens);

  Engine& engine_;
  ChatTemplate template_;
  Session session_;
  GenerateOptions generate_;
  std::string system_;
  std::vector<ChatMessage> turns_;
  size_t first_turn_ = 0;  // the first one that the context holds
};

}  // namespace hearth::cli
