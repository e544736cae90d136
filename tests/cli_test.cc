// The hearth program from outside: what it prints, and how it fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/test_data.h"
#include "format/gguf_writer.h"
#include "json_schema.h"
#include "program.h"

namespace hearth {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string Golden(const std::string& name) {
  return SourcePath("tests/goldens/") + name + ".gguf";
}

// A file with this content in the test's folder.
std::string MakeFile(const std::string& name, const std::string& content) {
  const std::string path = ::testing::TempDir() + "hearth_" + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

// Failed with `exit_code`, nothing on stdout, one line on stderr that contains `words`.
void ExpectOneSentence(const ProgramResult& result, int exit_code, const std::string& words) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith("hearth: "));
  EXPECT_THAT(result.err, EndsWith("\n"));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr(words));
}

TEST(CliFailureTest, BadModelFiles) {
  std::string garbage(5000, '\0');
  for (size_t i = 0; i < garbage.size(); ++i) garbage[i] = static_cast<char>(i * i * 31 + i);
  const std::string whole = ReadWholeFile(Golden("llama"));
  struct Case {
    std::string model;
    std::string words;
  };
  const Case cases[] = {
      {MakeFile("garbage.gguf", garbage), "garbage.gguf"},
      {MakeFile("truncated.gguf", whole.substr(0, whole.size() / 2)), "truncated.gguf"},
      {MakeFile("header.gguf", whole.substr(0, 3000)), "header.gguf"},
      {MakeFile("text.gguf", "Once upon a time there was no model here.\n"), "text"},
      {MakeFile("empty.gguf", ""), "empty"},
      {::testing::TempDir(), "directory"},
      {::testing::TempDir() + "no_such_file.gguf", "no_such_file.gguf"},
  };
  for (const Case& c : cases) {
    ExpectOneSentence(RunHearth({"run", c.model, "-p", "x"}), 1, c.words);
    ExpectOneSentence(RunHearth({"inspect", c.model}), 1, c.words);
  }
}

TEST(CliFailureTest, UnknownArchitectureIsNamed) {
  GgufMetadata metadata;
  metadata.SetString("general.architecture", "mamba");
  const std::string path = ::testing::TempDir() + "hearth_mamba.gguf";
  GgufWriter writer(path, metadata, {});
  writer.Finish();
  ExpectOneSentence(RunHearth({"run", path, "-p", "x"}), 1, "'mamba'");
}

TEST(CliFailureTest, ImpossibleRequests) {
  const std::string model = Golden("llama");
  ExpectOneSentence(RunHearth({"run", model, "-p", "x", "--ctx", "4096"}), 1, "at most 128");
  ExpectOneSentence(RunHearth({"run", model, "-p", std::string(500, 'x')}), 1, "the context");
  // So long that it is not even tokenized.
  ExpectOneSentence(RunHearth({"run", model}, std::string(1 << 20, 'x')), 1, "has at least");
  ExpectOneSentence(RunHearth({"run", model, "-f", "/nowhere/prompt"}), 1, "/nowhere/prompt");
  ExpectOneSentence(RunHearth({"eval", model, "--text", "/nowhere/text"}), 1, "/nowhere/text");
}

TEST(CliFailureTest, ATooSmallBudgetNamesTheSmallestThatWorks) {
  const std::string model = Golden("llama");
  const ProgramResult refused = RunHearth({"run", model, "-p", "x", "--memory", "1M"});
  ExpectOneSentence(refused, 1, "the smallest that can is ");
  const size_t begin = refused.err.find("smallest that can is ") + 21;
  std::string size = refused.err.substr(begin, refused.err.find(' ', begin) - begin);
#if defined(__SANITIZE_ADDRESS__)
  // The program is ten times as large and, where page cache is short, differs by MiB between runs.
  size = std::to_string(std::stoi(size) + 16) + "M";
#endif
  const ProgramResult accepted = RunHearth({"run", model, "-p", "x", "-n", "2", "--memory", size});
  EXPECT_EQ(accepted.exit_code, 0) << size << ": " << accepted.err;
}

TEST(CliFailureTest, WrongUsageHasItsOwnExitCode) {
  const std::string model = Golden("llama");
  ExpectOneSentence(RunHearth({"run", model, "--frobnicate"}), 2, "--frobnicate");
  ExpectOneSentence(RunHearth({"run"}), 2, "MODEL");
  for (const char* command : {"run", "plan", "inspect", "eval", "tokenize", "profile", "bench"}) {
    ExpectOneSentence(RunHearth({command, ""}), 2, "MODEL: expected a value, found ''");
  }
  ExpectOneSentence(RunHearth({"dance"}), 2, "dance");
  ExpectOneSentence(RunHearth({"help", "dance"}), 2, "dance");
  ExpectOneSentence(RunHearth({"chat", "m.gguf"}), 2, "'chat'; did you mean 'hearth run'?");
  ExpectOneSentence(RunHearth({"inspcet", "m.gguf"}), 2, "did you mean 'hearth inspect'?");
  ExpectOneSentence(RunHearth({"help", "inspcet"}), 2, "did you mean 'inspect'?");
  ExpectOneSentence(RunHearth({"run", model, "--tmp", "0"}), 2,
                    "'--tmp' of hearth run; did you mean --temp?");
  ExpectOneSentence(RunHearth({"run", model, "-c", "64"}), 2, "did you mean --ctx?");
  ExpectOneSentence(RunHearth({"run", model, "one", "two"}), 2, "'two' is one word too many");
  ExpectOneSentence(RunHearth({"run", model, "-p", "x", "-f", "y"}), 2, "-f");
  ExpectOneSentence(RunHearth({"run", model, "-p", "x", "--kv", "q3"}), 2, "--kv");
  ExpectOneSentence(RunHearth({"run", model, "-p", "x", "-n", "0"}), 2, "--tokens");
}

TEST(CliFailureTest, WrongValuesOfFlagsAreWrongUsage) {
  // Before the model is looked for.
  const std::vector<std::vector<std::string>> cases = {
      {"--memory", "much"},
      {"--memory", "1e400"},
      {"--memory", ""},
      {"--isa", ""},
      {"--isa", "mmx"},
      {"--temp", "200"},
      {"--temp", "nan"},
      {"--top-p", "2"},
      {"--seed", "-1"},
      {"--seed", "1e3"},
      {"--seed", ""},
      {"--seed", "18446744073709551616"},
      {"--stop", ""},
      {"--logit-bias", "5=inf"},
      {"--logit-bias", "5=nan"},
      {"--logit-bias", "-5=1"},
      {"--logit-bias", "5"},
      {"--logit-bias", ""},
      {"--threads", "0"},
      {"--chat-format", "nonsense"},
  };
  for (const auto& flag : cases) {
    ExpectOneSentence(RunHearth({"run", "/nowhere", "-p", "x", flag[0], flag[1]}), 2, flag[0]);
  }
  ExpectOneSentence(RunHearth({"run", "/nowhere", "-f", ""}), 2, "--file");
  ExpectOneSentence(RunHearth({"tokenize", "/nowhere", "-f", ""}), 2, "--file");
  ExpectOneSentence(RunHearth({"eval", "/nowhere", "--text", ""}), 2, "--text");
  const std::vector<std::string> synth = {"synth", "--shape", "llama2-7b", "-o", "/nowhere/x"};
  for (const auto& flag : std::vector<std::vector<std::string>>{
           {"--quant", "zzz"}, {"--quant", "q4_k"}, {"--seed", "-1"}}) {
    auto arguments = synth;
    arguments.insert(arguments.end(), flag.begin(), flag.end());
    ExpectOneSentence(RunHearth(arguments), 2, flag[0]);
  }
}

TEST(CliFailureTest, WhatIsNoNumberIsInNoRange) {
  for (const char* value : {"nan", "-nan", "inf", "-inf"}) {
    ExpectOneSentence(RunHearth({"run", "/nowhere", "-p", "x", "--pinned", value}), 2, "--pinned");
    ExpectOneSentence(RunHearth({"bench", "/nowhere", "--pinned", value}), 2, "--pinned");
    ExpectOneSentence(RunHearth({"plan", "/nowhere", "--min-speed", value}), 2, "--min-speed");
    ExpectOneSentence(
        RunHearth({"profile", "/nowhere", "--text", "x", "-o", "y", "--save-every", value}), 2,
        "--save-every");
    for (const char* flag :
         {"--device-bandwidth", "--link-bandwidth", "--link-latency", "--memory-bandwidth"}) {
      ExpectOneSentence(RunHearth({"plan", "opt-6.7b", "--device-memory", "8G", flag, value}), 2,
                        flag);
    }
    ExpectOneSentence(RunHearth({"simulate", "--device", "oneplus-12", "--gate-fires", value}), 2,
                      "--gate-fires");
  }
  ExpectOneSentence(RunHearth({"run", "/nowhere", "-p", "x", "--ctx", "0"}), 2,
                    "from 1 to 2^31, found '0'");
}

TEST(CliFailureTest, FlagsWithoutEffectAreRefused) {
  const std::string model = Golden("llama");
  for (const char* flag : {"--seed", "--top-k", "--top-p", "--min-p"}) {
    ExpectOneSentence(RunHearth({"run", model, "-p", "x", "--temp", "0", flag, "1"}), 2, flag);
  }
  ExpectOneSentence(RunHearth({"run", model, "-p", "x", "--repetition-window", "3"}), 2,
                    "--repetition-window");
  ExpectOneSentence(RunHearth({"run", model, "-p", "x", "--raw", "--system", "s"}), 2, "--system");
  ExpectOneSentence(RunHearth({"run", model, "-p", "x", "--system", "s"}), 1, "no chat template");
  ExpectOneSentence(RunHearth({"run", model, "-p", "x", "--repetition-penalty", "1.2",
                               "--repetition-window", "0"}),
                    2, "--repetition-window 0");
  ExpectOneSentence(RunHearth({"run", model, "-p", "x", "--logit-bias", "1000000=1"}), 2,
                    "found 1000000");
}

TEST(CliFailureTest, OutputThatNobodyTakesIsAnError) {
  const std::string model = Golden("llama");
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--version"},
                                                    {"--help"},
                                                    {"run", "--help"},
                                                    {"help"},
                                                    {"inspect", model},
                                                    {"run", model, "-p", "x", "--seed", "1"}}) {
    for (const char* out : {"/dev/full", ProgramStreams::kClosed}) {
      const ProgramResult result = RunHearth(arguments, "", {.out = out, .err = ""});
      ExpectOneSentence(result, 1, "standard output");
    }
  }
}

TEST(CliTest, NoticesThatNobodyTakesAreNone) {
  const std::vector<std::string> arguments = {"run",       Golden("llama"), "-p", "x",
                                              "--verbose", "--seed",        "1"};
  const ProgramResult normal = RunHearth(arguments);
  ASSERT_EQ(normal.exit_code, 0) << normal.err;
  for (const char* err : {"/dev/full", ProgramStreams::kClosed}) {
    const ProgramResult result = RunHearth(arguments, "", {.out = "", .err = err});
    EXPECT_EQ(result.exit_code, 0) << err;
    EXPECT_EQ(result.out, normal.out) << err;
    EXPECT_EQ(RunHearth({"dance"}, "", {.out = "", .err = err}).exit_code, 2) << err;
  }
}

TEST(CliTest, AnEmptyPromptIsTheBareBos) {
  std::string bytes = ReadWholeFile(Golden("llama"));
  const std::string model = Golden("llama");
  const auto prefill = [](const ProgramResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out)["prefill"]["tokens"].get<int>();
  };
  EXPECT_EQ(prefill(RunHearth({"run", model, "-p", "", "-n", "2", "--json"})), 1);
  // A tokenizer that does not add BOS, but has one.
  const std::string add_key = "tokenizer.ggml.add_bos_token";
  const size_t flag = bytes.find(add_key);
  ASSERT_NE(flag, std::string::npos);
  bytes[flag + add_key.size() + 4] = 0;  // after the value's type
  const std::string without_flag = MakeFile("no_add_bos.gguf", bytes);
  EXPECT_EQ(prefill(RunHearth({"run", without_flag, "-p", "", "-n", "2", "--json"})), 1);
  const std::string id_key = "tokenizer.ggml.bos_token_id";
  const size_t id = bytes.find(id_key);
  ASSERT_NE(id, std::string::npos);
  bytes.replace(id + id_key.size() + 4, 4, 4, '\xff');
  const std::string without_bos = MakeFile("no_bos.gguf", bytes);
  ExpectOneSentence(RunHearth({"run", without_bos, "-p", ""}), 1,
                    "the model has no BOS to start a text from: give a prompt");
}

TEST(CliTest, TextOfTheFileIsMadeSafeToPrint) {
  std::string bytes = ReadWholeFile(Golden("llama"));
  for (const std::string key : {"general.name", "tokenizer.ggml.pre"}) {
    const size_t at = bytes.find(key);
    if (at != std::string::npos) bytes[at + key.size() + 4 + 8] = '\x1b';  // type, length
  }
  const ProgramResult text = RunHearth({"inspect", MakeFile("escapes.gguf", bytes)});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.out.find('\x1b'), std::string::npos);
  EXPECT_THAT(text.out, HasSubstr("\\x1b"));
}

TEST(CliTest, NamesInErrorsAreMadeSafeToPrint) {
  const std::string name = "/nowhere/a\x1b[31m\nb\xc3\xa9.gguf";
  const std::string shown = "/nowhere/a\\x1b[31m\\x0ab\xc3\xa9.gguf";
  ExpectOneSentence(RunHearth({"run", name, "-p", "a"}), 1, shown);
  ExpectOneSentence(RunHearth({"run", Golden("llama"), "-f", name}), 1, shown);
  ExpectOneSentence(RunHearth({"run", "/nowhere", "x", name}), 2, shown);
}

TEST(CliTest, TheBudgetIsNullWhereNoneWasSet) {
  const auto budget = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run", Golden("llama"), "-p", "x", "-n", "1", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return nlohmann::json::parse(RunHearth(arguments).out)["memory"]["budget_bytes"];
  };
  EXPECT_TRUE(budget({}).is_null());
  EXPECT_EQ(budget({"--memory", "400M"}), 400 << 20);
}

TEST(CliTest, RunPrintsTheSameTextInEveryForm) {
  const std::vector<std::string> base = {"run", Golden("llama"), "-n", "12", "--seed", "7"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  const ProgramResult plain = RunHearth(with({"-p", "abc"}));
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_THAT(plain.err, HasSubstr("tok/s"));
  EXPECT_EQ(RunHearth(with({}), "abc").out, plain.out) << "the prompt on standard input";
  EXPECT_EQ(RunHearth(with({"-f", MakeFile("prompt.txt", "abc")})).out, plain.out);
  EXPECT_EQ(RunHearth(with({"-f", "-"}), "abc").out, plain.out);
  EXPECT_EQ(RunHearth(with({"-p", "abc", "--threads", "1"})).out, plain.out);
  const ProgramResult other =
      RunHearth({"run", Golden("llama"), "-p", "abc", "-n", "12", "--seed", "8"});
  EXPECT_NE(other.out, plain.out) << "another seed";

  const ProgramResult json = RunHearth(with({"-p", "abc", "--json"}));
  const nlohmann::json document = nlohmann::json::parse(json.out);
  EXPECT_EQ(document["text"], plain.out);
  EXPECT_EQ(document["tokens"], document["token_ids"].size());
  const std::string ids = RunHearth({"tokenize", Golden("llama"), "-p", "abc", "--special"}).out;
  EXPECT_EQ(document["prefill"]["tokens"], std::count(ids.begin(), ids.end(), ' ') + 1);
  EXPECT_GT(document["memory"]["ledger"]["weights"], 0);
  EXPECT_TRUE(document["io"].is_null());
}

TEST(CliTest, StopStringsEndTheText) {
  const ProgramResult all =
      RunHearth({"run", Golden("llama"), "-p", "abc", "--temp", "0", "-n", "20"});
  ASSERT_GT(all.out.size(), 4u);
  const std::string stop = all.out.substr(all.out.size() / 2, 2);
  const ProgramResult cut =
      RunHearth({"run", Golden("llama"), "-p", "abc", "--temp", "0", "-n", "20", "--stop", stop});
  EXPECT_EQ(cut.out, all.out.substr(0, all.out.find(stop)));
  // Brackets are text, not a list, and each --stop takes one value.
  const ProgramResult two = RunHearth({"run", "--stop", "[]", "--stop", stop, Golden("llama"), "-p",
                                       "abc", "--temp", "0", "-n", "20"});
  EXPECT_EQ(two.out, cut.out) << two.err;
}

TEST(CliTest, InspectDescribesModels) {
  const ProgramResult text = RunHearth({"inspect", Golden("mixtral")});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("experts    5, 2 per token"));
  const ProgramResult json = RunHearth({"inspect", Golden("llama-drelu"), "--json"});
  const nlohmann::json document = nlohmann::json::parse(json.out);
  EXPECT_EQ(document["model"]["ffn_activation"], "drelu");
  EXPECT_TRUE(document["run"]["runnable"]);
  const std::string gemma = RunHearth({"inspect", Golden("gemma3")}).out;
  EXPECT_THAT(gemma, HasSubstr("ffn 24 (gelu)"));
  EXPECT_THAT(gemma, HasSubstr("sliding window 7 in 6 of 7 layers"));
  EXPECT_THAT(RunHearth({"inspect", Golden("glm4moe")}).out,
              HasSubstr("experts    8, 3 per token in 2 of 3 layers"));
}

TEST(CliTest, InspectSaysOfEveryFamilyWhatItsSchemaAllows) {
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("tests/goldens"))) {
    if (entry.path().extension() != ".gguf") continue;
    const ProgramResult result = RunHearth({"inspect", entry.path(), "--json"});
    ASSERT_EQ(result.exit_code, 0) << entry.path() << result.err;
    EXPECT_THAT(SchemaComplaints(Schema("inspect"), nlohmann::json::parse(result.out)), IsEmpty())
        << entry.path();
  }
}

// Whatever the reason, inspect shows the rest and does not say that the file runs.
TEST(CliTest, InspectShowsWhatItCanOfFilesThatDoNotRun) {
  const std::string whole = ReadWholeFile(Golden("llama"));
  const auto changed = [&](const std::string& name, size_t after, char byte) {
    std::string bytes = whole;
    bytes.at(bytes.find(name) + name.size() + after) = byte;
    return MakeFile("changed.gguf", bytes);
  };
  const auto expect_no = [](const std::string& model, const std::string& reason) {
    const ProgramResult text = RunHearth({"inspect", model});
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_THAT(text.out, HasSubstr("runs       no: "));
    EXPECT_THAT(text.out, HasSubstr(reason));
    EXPECT_THAT(text.out, HasSubstr("tensors"));
    const nlohmann::json json = nlohmann::json::parse(RunHearth({"inspect", model, "--json"}).out);
    EXPECT_THAT(SchemaComplaints(Schema("inspect"), json), IsEmpty());
    EXPECT_FALSE(json["run"]["runnable"]);
    ExpectOneSentence(RunHearth({"run", model, "-p", "x"}), 1, reason);
  };
  // After a name: the number of dimensions, two of them, the type.
  const std::string foreign = changed("blk.0.attn_q.weight", 4 + 16, 31);
  expect_no(foreign, "Q4_0_4_4");
  const ProgramResult shown = RunHearth({"inspect", foreign});
  EXPECT_THAT(shown.out, HasSubstr("shape      3 layers"));
  EXPECT_THAT(shown.out, HasSubstr("Q4_0_4_4    1 tensors     unknown"));
  // The embedding too, whose shape says how large the vocabulary is.
  const std::string embedding = changed("token_embd.weight", 4 + 16, 32);
  expect_no(embedding, "Q4_0_4_8");
  EXPECT_THAT(RunHearth({"inspect", embedding}).out, HasSubstr("shape      3 layers"));
  // A tokenizer that is not there.
  expect_no(changed("tokenizer.ggml.model", 4 + 8, 'k'), "tokenizer.ggml.model");
}

TEST(CliTest, WhatAFolderLacksIsSaidByEveryCommand) {
  const std::string folder = ::testing::TempDir() + "hearth_published";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << R"({"model_type": "llama"})";
  const std::string text = MakeFile("folder.txt", "some text");
  const std::vector<std::vector<std::string>> commands = {
      {"run", folder, "-p", "x"},
      {"inspect", folder},
      {"tokenize", folder, "-p", "x"},
      {"eval", folder, "--text", text},
      {"bench", folder},
      {"serve", folder},
      {"profile", folder, "--text", text, "-o", text + ".profile"}};
  for (const auto& command : commands) {
    ExpectOneSentence(RunHearth(command), 1, "config.json: 'hidden_size' is missing");
  }
  std::filesystem::remove_all(folder);
}

TEST(CliTest, TokenizeTakesTheBytesOfAFile) {
  const std::string file = MakeFile("tokens.txt", "a\n");
  const ProgramResult result = RunHearth({"tokenize", Golden("llama"), "-f", file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
  EXPECT_EQ(RunHearth({"tokenize", Golden("llama")}, "a\n").out, result.out);
  const ProgramResult special = RunHearth({"tokenize", Golden("llama"), "-p", "a", "--special"});
  EXPECT_THAT(special.out, StartsWith("1 "));
}

// The solvers of plans take 42 MB: a program that linked them would not fit.
TEST(CliTest, TheEmbeddedModelRunsInLittleMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer takes memory of its own";
#endif
  const ProgramResult run = RunHearth({"run", SourcePath("models/hearth-stories-5m.gguf"), "--raw",
                                       "-p", "Once upon a time", "-n", "4", "--memory", "56M"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

TEST(CliTest, SynthMakesAModelThatRuns) {
  const std::string shape = MakeFile("shape.json", R"({"arch": "llama", "hidden_size": 64,
      "intermediate_size": 128, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2,
      "vocab_size": 300, "activation": "drelu"})");
  for (const char* quant : {"f32", "q4_0", "q8_0"}) {
    const std::string model = ::testing::TempDir() + "hearth_synth.gguf";
    const ProgramResult made =
        RunHearth({"synth", "--shape", shape, "-o", model, "--quant", quant, "--rank", "32"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    const ProgramResult run = RunHearth({"run", model, "-p", "hi", "-n", "8"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    std::remove(model.c_str());
  }
  const std::string packed = ::testing::TempDir() + "hearth_synth_packed.gguf";
  const ProgramResult made =
      RunHearth({"synth", "--shape", shape, "-o", packed, "--packed", "--active", "0.2", "--gate",
                 "0.3", "--skew", "0.3", "--locality", "low"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const ProgramResult run =
      RunHearth({"run", packed, "-p", "hi", "-n", "8", "--mode", "predicted"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  std::remove(packed.c_str());
  ExpectOneSentence(RunHearth({"synth", "--shape", "nothing-7b", "-o", "x.gguf"}), 1, "nothing-7b");
  ExpectOneSentence(
      RunHearth({"synth", "--shape", "mistral-7b", "-o", "x.gguf", "--active", "0.1"}), 2,
      "never zero");
  for (const auto& [flag, value] : {std::pair{"--active", "2"},
                                    {"--active", "0"},
                                    {"--active", "nan"},
                                    {"--gate", "2"},
                                    {"--skew", "nan"},
                                    {"--rank", "33"}}) {
    ExpectOneSentence(RunHearth({"synth", "--shape", shape, "-o", "x.gguf", flag, value}), 2, flag);
  }
  ExpectOneSentence(RunHearth({"synth", "--shape", shape, "-o", "x.gguf", "--locality", "no"}), 2,
                    "high, medium, low or measured");
  ExpectOneSentence(
      RunHearth({"synth", "--shape", shape, "-o", "x.gguf", "--packed", "--quant", "f32"}), 1,
      "packed file");
  ExpectOneSentence(RunHearth({"synth", "--shape", shape, "-o", "/nowhere/x.gguf"}), 1, "/nowhere");
}

TEST(CliTest, HelpAndVersion) {
  EXPECT_THAT(RunHearth({"help"}).out, HasSubstr("Exit codes: 0 done, 1 failed, 2 wrong usage"));
  EXPECT_THAT(RunHearth({"help", "run"}).out, HasSubstr("--memory SIZE"));
  EXPECT_THAT(RunHearth({"--version"}).out, StartsWith("hearth "));
  EXPECT_EQ(RunHearth({"--help"}).out, RunHearth({"help"}).out);
  EXPECT_EQ(RunHearth({"run", "--help"}).out, RunHearth({"help", "run"}).out);
  EXPECT_THAT(RunHearth({"help", "run"}).out, HasSubstr("Examples:\n  hearth run "));
  for (const char* command : {"run", "serve", "plan", "pack", "bench", "simulate"}) {
    std::istringstream lines(RunHearth({"help", command}).out);
    for (std::string line; std::getline(lines, line);) {
      if (line.find('|') != std::string::npos) continue;  // a choice is not cut
      EXPECT_LE(line.size(), 80u) << command << ": " << line;
    }
  }
  EXPECT_THAT(RunHearth({"help", "--table"}).out, HasSubstr("command\tCommands\trun\t\t"));
  EXPECT_THAT(RunHearth({"help", "--table", "run"}).out,
              HasSubstr("option\tMemory and speed\t--memory\tSIZE\tmost memory"));
  EXPECT_EQ(RunHearth({"run", "--help"}).exit_code, 0);
  EXPECT_EQ(RunHearth({}).exit_code, 2);
}

}  // namespace
}  // namespace hearth
