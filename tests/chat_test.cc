// `hearth run` on a terminal: turns, Ctrl-C, Ctrl-D, and a conversation that fills its context.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/test_data.h"
#include "format/gguf.h"
#include "program.h"
#include "terminal.h"
#include "text/tokenizer.h"

namespace hearth {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCtrlC[] = "\x03";
constexpr char kCtrlD[] = "\x04";
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

TEST(ChatTest, AnswersTurnsAndLeavesOnCtrlD) {
  TerminalProgram chat({"run", Embedded(), "-n", "16"});
  EXPECT_THAT(chat.ReadUntil("> "), HasSubstr("Ctrl-D leaves"));
  for (const char* line : {"Tell me a story.\n", "And then?\n"}) {
    chat.Type(line);
    EXPECT_THAT(chat.ReadUntil(kAnswered), HasSubstr("\n(")) << "an answer, then its speed";
    chat.ReadUntil("> ");
  }
  chat.Type("\n");  // nothing is asked, nothing answered
  EXPECT_EQ(chat.ReadUntil("> "), "");
  chat.Type(kCtrlD);
  EXPECT_EQ(chat.WaitForExit(), 0);
}

TEST(ChatTest, CtrlCAtThePromptDoesNotLeave) {
  TerminalProgram chat({"run", Embedded(), "-n", "8"});
  chat.ReadUntil("> ");
  for (int i = 0; i < 3; ++i) {
    chat.Type("half a quest");
    chat.Type(kCtrlC);
    chat.ReadUntil("(Ctrl-D leaves)\n> ");
  }
  chat.Type("Hello!\n");
  EXPECT_THAT(chat.ReadUntil(kAnswered), Not(HasSubstr("Ctrl-D")));
  chat.ReadUntil("> ");
  chat.Type(kCtrlD);
  EXPECT_EQ(chat.WaitForExit(), 0);
}

TEST(ChatTest, CtrlCStopsTheAnswerAndNotTheProgram) {
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
    EXPECT_EQ(chat.ReadUntil("> "), ", stopped)\n") << "no notice of a Ctrl-C at the prompt";
  }
  chat.Type(kCtrlD);
  EXPECT_EQ(chat.WaitForExit(), 0);
  std::remove(model.c_str());
  std::remove(shape.c_str());
}

TEST(ChatTest, AFullContextIsSaidAndTheChatGoesOn) {
  TerminalProgram chat(NeverEnding(Embedded(), {"run", Embedded(), "--ctx", "64"}));
  chat.ReadUntil("> ");
  chat.Type("Hello!\n");
  chat.ReadUntil(kAnswered);
  EXPECT_EQ(chat.ReadUntil("> "), ", cut at the length limit)\n");
  chat.Type("Hello again!\n");
  EXPECT_EQ(chat.ReadUntil("\n"),
            "hearth: the conversation has filled the context of 64 tokens and starts anew; a "
            "larger --ctx holds more");
  chat.ReadUntil(kAnswered);
  chat.ReadUntil("> ");
  for (const size_t length : {1000, 4000}) {  // too many tokens, too many bytes to be tokenized
    chat.Type(std::string(length, 'x') + "\n");
    EXPECT_THAT(chat.ReadUntil("> "), HasSubstr("does not fit into the context of 64 tokens"));
  }
  chat.Type("Hello!\n");
  chat.ReadUntil(kAnswered);
  chat.ReadUntil("> ");
  chat.Type(kCtrlD);
  EXPECT_EQ(chat.WaitForExit(), 0);
}

TEST(ChatTest, VerboseShowsKernelsAndLedgerAtTheStart) {
  TerminalProgram chat({"run", Embedded(), "--verbose", "--isa", "scalar"});
  const std::string start = chat.ReadUntil("> ");
  EXPECT_THAT(start, HasSubstr("with scalar kernels"));
  EXPECT_THAT(start, HasSubstr("kv cache"));
  chat.Type(kCtrlD);
  EXPECT_EQ(chat.WaitForExit(), 0);
}

TEST(ChatTest, RefusesWhatOnlyACompletionHas) {
  TerminalProgram chat({"run", Embedded(), "--json"});
  EXPECT_THAT(chat.ReadUntil("\n"), HasSubstr("--json needs a prompt"));
  EXPECT_EQ(chat.WaitForExit(), 2);
}

}  // namespace
}  // namespace hearth
