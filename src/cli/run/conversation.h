// A conversation on the command line: what was said, the part of it that the context holds,
// answers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/session/session.h"
#include "text/chat/answer_reader.h"
#include "text/chat/chat_template.h"

namespace hearth::cli {

// The format that was asked for, or the model's own template. Throws Error(kUnsupported) where
// there is neither.
ChatTemplate ChooseTemplate(const std::optional<ChatFormat>& format, const Model& model);

// Throws the same before a model is loaded, where its file has no template. For the start of a
// command: loading may take long.
void CheckTemplate(const std::optional<ChatFormat>& format, const std::string& model);

// Told of an answer as it comes: of what the model thinks, and of what it says. False stops.
using PieceFn = std::function<bool(std::string_view text, bool is_thought)>;

struct ChatAnswer {
  GenerateResult result;  // its text: what the model says
  std::string reasoning;  // what it thinks
};

// One thread. The engine must outlive it.
class Conversation {
 public:
  // `system`: the system message, none where empty. Of `generate` the sampling, the stop texts and
  // max_tokens count.
  Conversation(Engine& engine, ChatTemplate chat_template, std::string system,
               const GenerateOptions& generate);

  // Asks the question and tells the answer to on_piece as it comes, with a progress line for a long
  // prompt. Where the context is too small for all that was said, its oldest turns are left out,
  // with a notice. Nothing, with a notice, where not even the question fits.
  std::optional<ChatAnswer> Ask(const std::string& question, const PieceFn& on_piece);
  // Answers the last question again. Throws Error(kInvalidArgument) where there is none.
  std::optional<ChatAnswer> AskAgain(const PieceFn& on_piece);
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
  struct Prompt {
    std::vector<TokenId> tokens;
    AnswerForm form;  // of its answer
  };
  std::optional<ChatAnswer> Answer(const PieceFn& on_piece);
  ChatAnswer Generate(const Prompt& prompt, const GenerateOptions& options,
                      const PieceFn& on_piece);
  Prompt MakePrompt();
  Prompt PromptFrom(size_t first_turn) const;
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
