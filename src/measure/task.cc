#include "measure/task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "engine/session/prompt.h"
#include "engine/session/text_windows.h"
#include "engine/session/token_scores.h"
#include "plan/json_object.h"

namespace hearth {
namespace {

constexpr size_t kMostAnswers = 64;
constexpr size_t kMostTextBytes = size_t{1} << 20;

TaskQuestion ReadQuestion(JsonObject& line) {
  const auto texts = [&](const char* key) {
    std::vector<std::string> all;
    for (const nlohmann::json& text : line.List(key, kMostAnswers)) {
      if (!text.is_string()) line.Fail(key, "texts", text);
      all.push_back(text.get<std::string>());
    }
    if (all.size() < 2) line.Fail(key, "at least two texts");
    return all;
  };
  TaskQuestion question;
  if (line.Has("choices")) {
    const std::string prompt = line.Text("prompt", kMostTextBytes);
    for (std::string& choice : texts("choices")) {
      question.pairs.push_back({prompt, std::move(choice)});
    }
  } else if (line.Has("prompts")) {
    question.kind = TaskKind::kPrompts;
    const std::string ending = line.Text("ending", kMostTextBytes);
    for (std::string& prompt : texts("prompts")) {
      question.pairs.push_back({std::move(prompt), ending});
    }
  } else {
    question.kind = TaskKind::kLastWord;
    const std::string prompt = line.Text("prompt", kMostTextBytes);
    question.pairs.push_back({prompt, line.Text("answer", kMostTextBytes)});
  }
  if (question.kind != TaskKind::kLastWord) {
    question.answer = line.Int("answer", 0, std::ssize(question.pairs) - 1);
  }
  for (const TaskPair& pair : question.pairs) {
    if (pair.first.empty() || pair.second.empty()) line.Fail("", "texts that are not empty");
  }
  return question;
}

// Unicode code points of a text in UTF-8.
double Characters(std::string_view text) {
  return static_cast<double>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<uint8_t>(byte) & 0xc0) != 0x80;
  }));
}

TaskShare ShareOf(uint64_t count, uint64_t all) {
  const double share = static_cast<double>(count) / static_cast<double>(all);
  return {share, std::sqrt(share * (1 - share) / static_cast<double>(all))};
}

// The tokens of a pair, of which those from `scored_from` on are scored.
struct PairTokens {
  std::vector<TokenId> tokens;
  size_t scored_from = 0;
};

struct PairScore {
  double log_likelihood = 0;  // a sum of natural logarithms
  bool is_greedy = true;      // each token is the likeliest
};

// Runs questions one after the other.
class TaskRun {
 public:
  explicit TaskRun(Engine& engine) : engine_(engine) {}

  std::vector<PairScore> Score(const TaskQuestion& question) {
    std::vector<PairTokens> all;
    for (const TaskPair& pair : question.pairs) all.push_back(TokensOf(pair));
    const size_t shared = SharedTokens(all);
    KvSequence kv(engine_.kv_pool());
    if (shared > 0) Run(kv, std::span(all.front().tokens).first(shared), [](size_t, size_t) {});
    std::vector<PairScore> scores;
    for (const PairTokens& one : all) {
      scores.push_back(ScorePair(kv, one, shared));
      kv.Truncate(static_cast<int64_t>(shared));
    }
    return scores;
  }

  uint64_t tokens() const { return tokens_; }

 private:
  PairTokens TokensOf(const TaskPair& pair) const {
    const int64_t context = engine_.context();
    const auto encode = [&](const std::string& text) {
      return EncodePrompt(engine_.model(), text, context);
    };
    PairTokens one{encode(pair.first + " " + pair.second), encode(pair.first).size()};
    if (std::ssize(one.tokens) > context) {
      throw ContextFull("question", context, std::to_string(one.tokens.size()));
    }
    // A token may span both texts, and the first one foresees nothing.
    one.scored_from = std::clamp<size_t>(one.scored_from, 1, one.tokens.size() - 1);
    return one;
  }

  // Of the tokens before those whose logits are wanted, how many all begin with.
  static size_t SharedTokens(const std::vector<PairTokens>& all) {
    const std::vector<TokenId>& first = all.front().tokens;
    size_t shared = all.front().scored_from - 1;
    for (const PairTokens& one : all) {
      const auto end = one.tokens.begin() + static_cast<ptrdiff_t>(one.scored_from) - 1;
      const auto differs = std::mismatch(first.begin(), first.end(), one.tokens.begin(), end);
      shared = std::min(shared, static_cast<size_t>(differs.first - first.begin()));
    }
    return shared;
  }

  template <typename After>
  void Run(KvSequence& kv, std::span<const TokenId> tokens, After&& after) {
    tokens_ += tokens.size();
    RunInChunks(engine_.pass(), kv, tokens, engine_.selector(), nullptr,
                [&](size_t begin, size_t count) {
                  after(begin, count);
                  return true;
                });
  }

  // kv holds the first `shared` tokens.
  PairScore ScorePair(KvSequence& kv, const PairTokens& one, size_t shared) {
    PairScore score;
    const std::span<const TokenId> rest = std::span(one.tokens).subspan(shared);
    Run(kv, rest, [&](size_t begin, size_t count) {
      for (size_t i = 0; i < count; ++i) {
        const size_t next = shared + begin + i + 1;
        if (next < one.scored_from || next >= one.tokens.size()) continue;
        const FloatView row = engine_.pass().Logits(static_cast<int64_t>(i), 1);
        const std::span<const float> logits(row.data, static_cast<size_t>(row.cols));
        score.log_likelihood -= NegativeLogLikelihood(logits, one.tokens[next]);
        score.is_greedy = score.is_greedy && LikeliestToken(logits) == one.tokens[next];
      }
    });
    if (!std::isfinite(score.log_likelihood)) {
      throw Error(ErrorCode::kCorrupt, engine_.model().path(), "its logits are not numbers");
    }
    return score;
  }

  Engine& engine_;
  uint64_t tokens_ = 0;
};

// The first pair with the highest value.
template <typename ValueOf>
int64_t Best(const TaskQuestion& question, ValueOf&& value_of) {
  size_t best = 0;
  for (size_t i = 1; i < question.pairs.size(); ++i) {
    if (value_of(i) > value_of(best)) best = i;
  }
  return static_cast<int64_t>(best);
}

}  // namespace

const char* TaskKindName(TaskKind kind) {
  switch (kind) {
    case TaskKind::kChoices:
      return "choices";
    case TaskKind::kPrompts:
      return "prompts";
    case TaskKind::kLastWord:
      return "last_word";
  }
  return "";
}

std::vector<TaskQuestion> ReadTask(std::string_view text, const std::string& file, uint64_t most) {
  std::vector<TaskQuestion> questions;
  uint64_t number = 0;
  while (!text.empty() && questions.size() < most) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}:{}", file, number);
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded()) throw Error(ErrorCode::kCorrupt, where, "is no JSON object");
    JsonObject object(json, where, ErrorCode::kCorrupt);
    questions.push_back(ReadQuestion(object));
    if (questions.back().kind != questions.front().kind) {
      throw Error(ErrorCode::kCorrupt, where, "kind of question",
                  TaskKindName(questions.front().kind), TaskKindName(questions.back().kind));
    }
  }
  if (questions.empty()) {
    throw Error(ErrorCode::kInvalidArgument, file, "it holds no questions: one JSON object a line");
  }
  return questions;
}

TaskResult AnswerTask(Engine& engine, const std::vector<TaskQuestion>& questions,
                      const TaskProgressFn& progress) {
  TaskRun run(engine);
  TaskResult result{.kind = questions.front().kind, .questions = questions.size()};
  uint64_t normalized = 0, done = 0;
  double words = 0;
  for (const TaskQuestion& question : questions) {
    const std::vector<PairScore> scores = run.Score(question);
    if (question.kind == TaskKind::kLastWord) {
      result.right += scores.front().is_greedy ? 1 : 0;
      words += scores.front().log_likelihood;
    } else {
      const auto sum = [&](size_t i) { return scores[i].log_likelihood; };
      const auto per_character = [&](size_t i) {
        return scores[i].log_likelihood / Characters(question.pairs[i].second);
      };
      result.right += Best(question, sum) == question.answer ? 1 : 0;
      normalized += Best(question, per_character) == question.answer ? 1 : 0;
    }
    if (progress) progress(++done, result.right);
  }
  result.accuracy = ShareOf(result.right, result.questions);
  result.normalized_accuracy = ShareOf(normalized, result.questions);
  result.perplexity = std::exp(-words / static_cast<double>(result.questions));
  result.tokens = run.tokens();
  return result;
}

}  // namespace hearth
