// Questions with known answers: how many of them a model answers right, by the likelihood that it
// gives to the possible answers.
//
// A file of questions has a JSON object a line, of one of these kinds:
//
//   {"prompt": text, "choices": [text, ...], "answer": index}     which choice follows the prompt
//   {"prompts": [text, ...], "ending": text, "answer": index}     which prompt the ending follows
//   {"prompt": text, "answer": text}                              the last word
//
// A single space stands between the two texts, which are tokenized as a whole; what is scored are
// the tokens after those of the first text alone. Questions are asked without examples, as
// EleutherAI's lm-evaluation-harness does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace hearth {

enum class TaskKind : uint8_t { kChoices, kPrompts, kLastWord };
const char* TaskKindName(TaskKind kind);  // "choices", "prompts", "last_word"

// A first text and what may follow it.
struct TaskPair {
  std::string first;
  std::string second;  // without the space before it
};

struct TaskQuestion {
  TaskKind kind = TaskKind::kChoices;
  std::vector<TaskPair> pairs;  // one for each possible answer
  int64_t answer = 0;           // the right pair; of a last word 0
};

// Reads the questions of a file's text, at most `most` of them, all of one kind. `file` is for
// messages. Throws Error(kCorrupt), naming the line, for what is none of the kinds above, and
// Error(kInvalidArgument) for a file without questions.
std::vector<TaskQuestion> ReadTask(std::string_view text, const std::string& file, uint64_t most);

// A share of questions and its standard error, sqrt(share (1 - share) / questions).
struct TaskShare {
  double share = 0;
  double error = 0;
};

struct TaskResult {
  TaskKind kind = TaskKind::kChoices;
  uint64_t questions = 0;
  uint64_t right = 0;
  TaskShare accuracy;             // the likeliest pair; of last words: each token is the likeliest
  TaskShare normalized_accuracy;  // of choices: by likelihood per character
  double perplexity = 0;          // of last words, a word counting once
  uint64_t tokens = 0;            // that were run
};

// Called after each question with those that are done and how many of them were right.
using TaskProgressFn = std::function<void(uint64_t done, uint64_t right)>;

// Answers all questions in the engine's mode. The tokens that the pairs of a question begin with
// together are run once. Throws Error(kContextFull) for a question that does not fit,
// Error(kCorrupt) where logits are no numbers.
TaskResult AnswerTask(Engine& engine, const std::vector<TaskQuestion>& questions,
                      const TaskProgressFn& progress = {});

}  // namespace hearth
