// `hearth run` on a terminal: turns, editing, pasted text, commands, Ctrl-C, Ctrl-D, and a
// conversation that fills its context.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/test_data.h"
#include "format/gguf.h"
#include "program.h"
#include "terminal.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCtrlC[] = "\x03";
constexpr char kCtrlD[] = "\x04";
constexpr char kUp[] = "\x1b[A";
constexpr char kLeft[] = "\x1b[D";
// What follows every answer; the model may write "> " itself.
constexpr char kAnswered[] = " tok/s";

std::string Embedded() { return SourcePath("models/hearth-stories-5m.gguf"); }

// Arguments that forbid every token at which an answer ends.
std::vector<std::string> NeverEnding(const std::string& model, std::vector<std::string> arguments) {
  const auto tokenizer = Tokenizer::FromGguf(GgufFile::Open(model).metadata());
  for (size_t i = 0; i < tokenizer->vocab_size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!tokenizer->IsEndOfGeneration(id) && id != tokenizer->special().bos) continue;
    arguments.insert(arguments.end(), {"--logit-bias", std::to_string(id) + "=-inf"});
  }
  return arguments;
}

std::string Pasted(const std::string& text) { return "\x1b[200~" + text + "\x1b[201~"; }

// Chats of which nothing is kept for those of other tests.
class ChatTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(state_);
    setenv("XDG_STATE_HOME", state_.c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(state_); }

  // What `chat` holds now, after it is done with what was typed.
  nlohmann::json Saved(TerminalProgram& chat) {
    const std::string path = state_ + "/saved.json";
    std::filesystem::create_directories(state_);
    chat.Type("/save " + path + "\r");
    chat.ReadUntil("messages written to");
    chat.ReadUntil("> ");
    return nlohmann::json::parse(std::ifstream(path))["messages"];
  }

  static void Leave(TerminalProgram& chat) {
    chat.Type(kCtrlD);
    EXPECT_EQ(chat.WaitForExit(), 0);
  }

  const std::string state_ = ::testing::TempDir() + "hearth_chat_state";
};

TEST_F(ChatTest, AnswersTurnsAndLeavesOnCtrlD) {
  TerminalProgram chat({"run", Embedded(), "-n", "16"});
  EXPECT_THAT(chat.ReadUntil("> "), HasSubstr("Ctrl-D leaves"));
  for (const char* line : {"Tell me a story.\n", "And then?\n"}) {
    chat.Type(line);
    EXPECT_THAT(chat.ReadUntil(kAnswered), HasSubstr("\n(")) << "an answer, then its speed";
    chat.ReadUntil("> ");
  }
  chat.Type("\n");  // nothing is asked, nothing answered
  EXPECT_THAT(chat.ReadUntil("> "), Not(HasSubstr("tok/s")));
  Leave(chat);
}

TEST_F(ChatTest, ArrowsEditTheLine) {
  TerminalProgram chat({"run", Embedded()});
  chat.ReadUntil("> ");
  chat.Type(std::string("/system a") + kLeft + "x\r");
  chat.ReadUntil("with this system message");
  chat.ReadUntil("> ");
  EXPECT_EQ(Saved(chat)[0]["content"], "xa");
  Leave(chat);
}

TEST_F(ChatTest, HistoryIsKeptForLaterChats) {
  for (const std::string& typed : {std::string("/system caf\xc3\xa9\r"), std::string(kUp) + "\r"}) {
    TerminalProgram chat({"run", Embedded()});
    chat.ReadUntil("> ");
    chat.Type(typed);
    chat.ReadUntil("with this system message");
    chat.ReadUntil("> ");
    chat.Type("/save " + state_ + "/saved\r");
    chat.ReadUntil("written to");
    chat.ReadUntil("> ");
    std::stringstream saved;
    saved << std::ifstream(state_ + "/saved").rdbuf();
    EXPECT_THAT(saved.str(), HasSubstr("caf\xc3\xa9"));
    // So that the newest line is the one that the next chat looks for.
    chat.Type("/system caf\xc3\xa9\r");
    chat.ReadUntil("with this system message");
    chat.ReadUntil("> ");
    Leave(chat);
  }
  struct stat history = {};
  ASSERT_EQ(stat((state_ + "/hearth/history").c_str(), &history), 0);
  EXPECT_EQ(history.st_mode & 0777, 0600u) << "what was said is nobody else's business";
}

TEST_F(ChatTest, APasteIsOneMessageHoweverLongItIs) {
  TerminalProgram chat({"run", Embedded()});
  chat.ReadUntil("> ");
  std::string lines = "one\ntwo\n\tthree";
  std::string many;
  while (many.size() < 20000) many += "word " + std::to_string(many.size()) + " \xe6\x97\xa5\n";
  many += "end";
  for (const std::string& text : {lines, many}) {
    std::string typed = text;  // terminals send the Return key for line ends
    std::replace(typed.begin(), typed.end(), '\n', '\r');
    chat.Type("/system " + Pasted(typed) + "\r");
    chat.ReadUntil("with this system message");
    chat.ReadUntil("> ");
    EXPECT_EQ(Saved(chat)[0]["content"], text);
  }
  Leave(chat);
}

TEST_F(ChatTest, QuotesBeginAMessageOfSeveralLines) {
  TerminalProgram chat({"run", Embedded(), "-n", "2"});
  chat.ReadUntil("> ");
  chat.Type("\"\"\"first\r");
  chat.ReadUntil("... ");
  chat.Type("second\"\"\"\r");
  chat.ReadUntil(kAnswered);
  chat.ReadUntil("> ");
  EXPECT_EQ(Saved(chat)[0]["content"], "first\nsecond");
  Leave(chat);
}

TEST_F(ChatTest, CommandsChangeTheConversation) {
  TerminalProgram chat({"run", Embedded(), "-n", "4", "--system", "Be kind."});
  chat.ReadUntil("> ");
  chat.Type("Hello!\r");
  chat.ReadUntil(kAnswered);
  chat.ReadUntil("> ");
  chat.Type("/regenerate\r");
  chat.ReadUntil(kAnswered);
  chat.ReadUntil("> ");
  const nlohmann::json saved = Saved(chat);
  ASSERT_EQ(saved.size(), 3u);
  EXPECT_EQ(saved[0]["content"], "Be kind.");
  EXPECT_EQ(saved[1]["content"], "Hello!");
  chat.Type("/undo\r");
  chat.ReadUntil("forgotten");
  chat.ReadUntil("> ");
  EXPECT_EQ(Saved(chat).size(), 1u);
  std::ofstream(state_ + "/other.json") << saved;  // a list alone is not a conversation
  chat.Type("/load " + state_ + "/other.json\r");
  chat.ReadUntil("hearth: /load");
  chat.ReadUntil("> ");
  std::ofstream(state_ + "/other.json") << nlohmann::json{{"messages", saved}};
  chat.Type("/load " + state_ + "/other.json\r");
  chat.ReadUntil("going on after 2 messages");
  chat.ReadUntil("> ");
  EXPECT_EQ(Saved(chat), saved);
  chat.Type("/set top-k 5\r");
  chat.ReadUntil("top-k 5\n");
  chat.Type("/set top-p 2\r");
  chat.ReadUntil("hearth: /set");
  chat.Type("/nonsense\r");
  chat.ReadUntil("there is no command '/nonsense'");
  chat.Type("/stats\r");
  EXPECT_THAT(chat.ReadUntil("kv cache"), HasSubstr("of 512 tokens, 2 messages"));
  chat.Type("/help\r");
  EXPECT_THAT(chat.ReadUntil("Ctrl-C stops"), HasSubstr("/regenerate"));
  chat.Type("/quit\r");
  EXPECT_EQ(chat.WaitForExit(), 0);
}

TEST_F(ChatTest, APromptOfAChatModelIsOneQuestion) {
  std::vector<std::string> arguments = {
      "run", Embedded(), "-p", "Tell me a story.", "-n", "8", "--temp", "0", "--json"};
  const auto json = [&] { return nlohmann::json::parse(RunHearth(arguments).out); };
  const nlohmann::json answer = json();
  arguments.insert(arguments.end(), {"--system", "Be brief."});
  EXPECT_GT(json()["prefill"]["tokens"], answer["prefill"]["tokens"]);
  arguments.resize(arguments.size() - 2);
  arguments.push_back("--raw");
  const nlohmann::json raw = json();
  EXPECT_LT(raw["prefill"]["tokens"], answer["prefill"]["tokens"]) << "no turns around it";
  EXPECT_NE(raw["text"], answer["text"]);
}

TEST_F(ChatTest, AnswersAreAsLongAsTheContextAllows) {
  const ProgramResult result = RunHearth(NeverEnding(
      Embedded(), {"run", Embedded(), "-p", "Tell me a story.", "--ctx", "400", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto answer = nlohmann::json::parse(result.out);
  EXPECT_GT(answer["token_ids"].size(), 300u);
}

TEST_F(ChatTest, ACompletionShowsItsPromptAndHowFarItIsRead) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "scalar kernels take minutes with the sanitizer";
#endif
  std::filesystem::create_directories(state_);
  const std::string shape = state_ + "/shape.json", model = state_ + "/slow.gguf";
  std::ofstream(shape) << R"({"hidden_size": 256, "intermediate_size": 2048, "num_layers": 2,
      "num_heads": 4, "num_kv_heads": 2, "head_dim": 64, "vocab_size": 600})";
  ASSERT_EQ(RunHearth({"synth", "--shape", shape, "-o", model}).exit_code, 0);
  std::string prompt;
  for (int i = 0; i < 400; ++i) prompt += "fox ";
  TerminalProgram run({"run", model, "--raw", "-p", prompt, "-n", "1", "--isa", "scalar",
                       "--threads", "1", "--ctx", "4096"});
  EXPECT_THAT(run.ReadUntil("reading the prompt"), HasSubstr("fox fox fox fox"));
  EXPECT_EQ(run.WaitForExit(), 0);
}

// A model whose prompt opens a block of thoughts, which these few words do not close.
TEST_F(ChatTest, ThoughtsAreNoAnswer) {
  const std::string model = ::testing::TempDir() + "hearth_thinking.gguf";
  CopyReplacing(Embedded(), model, "{{ '<|im_start|>assistant\n' }}",
                "{{ '<think>' }}{# </think>  #}");
  std::vector<std::string> arguments = {"run", model, "-p", "Hi.", "-n", "12", "--temp", "0"};
  const ProgramResult shown = RunHearth(arguments);
  arguments.emplace_back("--json");
  const nlohmann::json answer = nlohmann::json::parse(RunHearth(arguments).out);
  std::filesystem::remove(model);
  EXPECT_EQ(answer["text"], "");
  const std::string reasoning = answer["reasoning"];
  EXPECT_FALSE(reasoning.empty());
  EXPECT_THAT(shown.err, HasSubstr(reasoning));
  EXPECT_THAT(shown.out, Not(HasSubstr(reasoning))) << "a pipe gets what is said";
}

TEST_F(ChatTest, SeedsAreRandomUnlessAskedFor) {
  const std::vector<std::string> arguments = {"run", Embedded(), "-p", "Hi", "-n", "1", "--json"};
  const auto seed = [&] { return nlohmann::json::parse(RunHearth(arguments).out)["seed"]; };
  EXPECT_NE(seed(), seed());
}

TEST_F(ChatTest, CtrlCAtThePromptDoesNotLeave) {
  TerminalProgram chat({"run", Embedded(), "-n", "8"});
  chat.ReadUntil("> ");
  for (int i = 0; i < 3; ++i) {
    chat.Type("half a quest");
    chat.Type(kCtrlC);
    chat.ReadUntil("(Ctrl-D leaves)\n");
    chat.ReadUntil("> ");
  }
  chat.Type("Hello!\n");
  EXPECT_THAT(chat.ReadUntil(kAnswered), Not(HasSubstr("Ctrl-D")));
  chat.ReadUntil("> ");
  Leave(chat);
}

TEST_F(ChatTest, CtrlCStopsTheAnswerAndNotTheProgram) {
  // A model of our own with a context so long that no answer ends before it is stopped.
  const std::string model = ::testing::TempDir() + "hearth_chat_test.gguf";
  const std::string shape = ::testing::TempDir() + "hearth_chat_test.json";
  std::ofstream(shape) << R"({"arch": "llama", "hidden_size": 32, "intermediate_size": 32,
      "num_layers": 1, "num_heads": 1, "num_kv_heads": 1, "vocab_size": 300,
      "context_length": 200000})";
  const ProgramResult made = RunHearth({"synth", "--shape", shape, "-o", model, "--quant", "f32"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  TerminalProgram chat(NeverEnding(model, {"run", model, "--chat-format", "llama-2", "--ctx",
                                           "200000", "-n", "200000", "--isa", "scalar"}));
  chat.ReadUntil("> ");
  for (int turn = 0; turn < 2; ++turn) {
    chat.Type("Hello!\n");
    for (int i = 0; i < 5; ++i) chat.ReadUntil(" ");  // the answer is coming
    chat.Type(kCtrlC);
    chat.ReadUntil(kAnswered);
    EXPECT_THAT(chat.ReadUntil("> "), AllOf(HasSubstr(", stopped)\n"), Not(HasSubstr("leaves"))));
  }
  chat.Type(kCtrlD);
  EXPECT_EQ(chat.WaitForExit(), 0);
  std::remove(model.c_str());
  std::remove(shape.c_str());
}

TEST_F(ChatTest, AFullContextDropsTheOldestTurns) {
  TerminalProgram chat(NeverEnding(Embedded(), {"run", Embedded(), "--ctx", "64"}));
  chat.ReadUntil("> ");
  chat.Type("Hello!\r");
  chat.ReadUntil(kAnswered);
  EXPECT_THAT(chat.ReadUntil("> "), HasSubstr(", cut at the length limit)"));
  chat.Type("Hello again!\r");
  EXPECT_THAT(chat.ReadUntil("a larger --ctx holds more"),
              HasSubstr("the context of 64 tokens is full: the 2 oldest of 3 messages are left"));
  chat.ReadUntil(kAnswered);
  chat.ReadUntil("> ");
  for (const size_t length : {1000, 4000}) {  // too many tokens, too many bytes to be tokenized
    chat.Type(std::string(length, 'x') + "\r");
    chat.ReadUntil("does not fit into the context of 64 tokens");
    chat.ReadUntil("> ");
  }
  chat.Type("Hello!\r");
  chat.ReadUntil(kAnswered);
  chat.ReadUntil("> ");
  Leave(chat);
}

TEST_F(ChatTest, VerboseShowsKernelsAndLedgerAtTheStart) {
  TerminalProgram chat({"run", Embedded(), "--verbose", "--isa", "scalar"});
  const std::string start = chat.ReadUntil("> ");
  EXPECT_THAT(start, HasSubstr("with scalar kernels"));
  EXPECT_THAT(start, HasSubstr("kv cache"));
  Leave(chat);
}

TEST_F(ChatTest, RefusesWhatOnlyACompletionHas) {
  TerminalProgram chat({"run", Embedded(), "--json"});
  EXPECT_THAT(chat.ReadUntil("\n"), HasSubstr("--json needs a prompt"));
  EXPECT_EQ(chat.WaitForExit(), 2);
}

}  // namespace
}  // namespace hearth
