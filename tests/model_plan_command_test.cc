// hearth doctor, hearth plan MODEL and --plan, one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <utility>

#include "base/checksum.h"
#include "base/test_data.h"
#include "hub_server.h"
#include "json_schema.h"
#include "measure/bench.h"
#include "prepare/pack/test_pack_models.h"
#include "program.h"
#include "sparsity/trace.h"
#include "storage/block_reader.h"
#include "test_refusals.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ModelPlanCommandTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestFolder("model_plan_command");
    setenv("XDG_CACHE_HOME", folder_->Path("cache").c_str(), 1);
    SynthesizeSparseModel(Model());
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
    unsetenv("XDG_CACHE_HOME");
  }

  void SetUp() override { setenv("XDG_CACHE_HOME", folder_->Path("cache").c_str(), 1); }

  static std::string Model() { return folder_->Path("model.gguf"); }
  static std::string PlanPath() { return folder_->Path("plan.json"); }
  static ProgramResult Plan(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"plan",  Model(), "--mode",   "predicted",
                                          "--ctx", "128",   "--tokens", "64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  }

  // The machine, for all commands.
  static void Measure() {
    if (std::filesystem::exists(folder_->Path("cache/hearth/hardware.json"))) return;
    const ProgramResult doctor = RunHearth({"doctor", "--quick", "--dir", folder_->Path("")});
    ASSERT_EQ(doctor.exit_code, 0) << doctor.err;
  }
  // The machine is known in it, and nothing of any model.
  static void UseFreshCache(const std::string& name) {
    Measure();
    std::filesystem::create_directories(folder_->Path(name + "/hearth"));
    std::filesystem::copy_file(folder_->Path("cache/hearth/hardware.json"),
                               folder_->Path(name + "/hearth/hardware.json"));
    setenv("XDG_CACHE_HOME", folder_->Path(name).c_str(), 1);
  }
  static ProgramResult Run(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run", Model(), "-p", "", "-n", "4", "--verbose"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  }

  static TestFolder* folder_;
};

TestFolder* ModelPlanCommandTest::folder_ = nullptr;

TEST_F(ModelPlanCommandTest, AMachineThatWasNotMeasuredIs) {
  setenv("XDG_CACHE_HOME", folder_->Path("unmeasured").c_str(), 1);
  const ProgramResult first = Plan({"--memory", "4G"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("was not measured yet"));
  EXPECT_TRUE(std::filesystem::exists(folder_->Path("unmeasured/hearth/hardware.json")));
  const ProgramResult again = Plan({"--memory", "4G"});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.err, Not(HasSubstr("measured")));
  const ProgramResult named = Plan({"--memory", "4G", "--hw", folder_->Path("none.json")});
  EXPECT_EQ(named.exit_code, 1);
  EXPECT_THAT(named.err, HasSubstr("none.json"));
}

TEST_F(ModelPlanCommandTest, FromMeasuringToRunning) {
  Measure();
  const ProgramResult whole = Plan({"--memory", "4G", "--json"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const auto document = nlohmann::json::parse(whole.out);
  EXPECT_THAT(SchemaComplaints(Schema("plan"), document), IsEmpty());
  EXPECT_EQ(document["io_strategy"], "none");

  uint64_t needed = 0;
  for (const auto& [name, bytes] : document["ledger"].items()) needed += bytes.get<uint64_t>();
  // What just fits is planned to be in memory: reading it in parts would only be slower.
  const ProgramResult fits = Plan({"--memory", std::to_string((needed >> 20) + 8) + "M", "--json"});
  ASSERT_EQ(fits.exit_code, 0) << fits.err;
  EXPECT_EQ(nlohmann::json::parse(fits.out)["io_strategy"], "none");
  // The neurons are 22 MiB; what a program takes differs by some MiB from run to run.
  const std::string memory = std::to_string((needed >> 20) - 9) + "M";
  const ProgramResult part = Plan({"--memory", memory, "-o", PlanPath()});
  ASSERT_EQ(part.exit_code, 0) << part.err;
  EXPECT_THAT(part.err, IsEmpty());  // learned before
  EXPECT_THAT(part.out, HasSubstr("tok/s"));

  const ProgramResult run =
      RunHearth({"run", Model(), "--plan", PlanPath(), "-p", "", "-n", "4", "--verbose"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("plan " + PlanPath()));
  const auto obeyed = nlohmann::json::parse(std::ifstream(PlanPath()));
  EXPECT_THAT(run.err, HasSubstr("reads: " + obeyed["io_strategy"].get<std::string>()));
  const bool pins = obeyed["stream"]["pinned_neurons"] > 0;
  EXPECT_THAT(run.err, HasSubstr(pins ? "of neurons pinned" : "of neurons cached"));

  // A server takes more than half of the cache of a plan that has room for nothing.
  auto narrow = obeyed;
  for (auto& bytes : narrow["ledger"]) bytes = 1;
  narrow["budget_bytes"] = 1 << 20;
  const std::string narrow_path = folder_->Path("narrow.json");
  std::ofstream(narrow_path) << narrow;
  const ProgramResult server = RunHearth({"serve", Model(), "--plan", narrow_path, "--port", "0"});
  EXPECT_EQ(server.exit_code, 1);
  EXPECT_THAT(server.err, HasSubstr("memory for requests together, beside half of its cache"));

  for (const char* said : {"--memory", "--threads", "--mode"}) {
    const std::string value = std::string(said) == "--mode" ? "dense" : "2";
    EXPECT_EQ(RunHearth({"run", Model(), "--plan", PlanPath(), said, value}).exit_code, 2) << said;
  }
}

TEST_F(ModelPlanCommandTest, PlansOnTheFly) {
  setenv("XDG_CACHE_HOME", folder_->Path("empty").c_str(), 1);
  // What is to run measures nothing unasked: that takes memory of its own.
  const ProgramResult unmeasured = Run({"--plan", "auto"});
  EXPECT_EQ(unmeasured.exit_code, 1);
  EXPECT_THAT(unmeasured.err, HasSubstr("'hearth doctor' measures this machine"));
  setenv("XDG_CACHE_HOME", folder_->Path("cache").c_str(), 1);
  Measure();
  const ProgramResult planned = Plan({"--memory", "4G", "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;

  // The ledger's, less a part of the neurons.
  uint64_t needed = 0;
  const auto document = nlohmann::json::parse(planned.out);
  for (const auto& [name, bytes] : document["ledger"].items()) needed += bytes.get<uint64_t>();
  const std::string memory = std::to_string((needed >> 20) - 9) + "M";
  const ProgramResult run =
      Run({"--plan", "auto", "--memory", memory, "--ctx", "128", "--threads", "1"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("plan auto: "));
  EXPECT_THAT(run.err, HasSubstr("; 1 processors, reads: "));
  EXPECT_THAT(run.err, HasSubstr("on 1 threads"));
  EXPECT_THAT(run.err, HasSubstr("context 128 tokens"));
  EXPECT_THAT(run.err, Not(HasSubstr("reads: none")));
  const ProgramResult bench =
      RunHearth({"bench", Model(), "--plan", "auto", "--ctx", "128", "--prefill", "8", "--decode",
                 "4", "--context", "8", "--reps", "1", "--json"});
  ASSERT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_EQ(nlohmann::json::parse(bench.out)["io"], nullptr);

  for (const char* said : {"--pinned", "--merge-gap", "--isa", "--io"}) {
    const std::string value = std::string(said) == "--pinned"      ? "0.5"
                              : std::string(said) == "--merge-gap" ? "none"
                                                                   : "auto";
    const ProgramResult refused = Run({"--plan", "auto", said, value});
    EXPECT_EQ(refused.exit_code, 2) << said;
    EXPECT_THAT(refused.err, HasSubstr(said));
  }
}

TEST_F(ModelPlanCommandTest, WhatPackLearnedFromATextNeedsNoOtherText) {
  UseFreshCache("packed");
  const std::string stories = SourcePath("models/hearth-stories-5m.gguf");
  const std::string text = folder_->Path("text"), learned = folder_->Path("learned.gguf"),
                    plain = folder_->Path("plain.gguf");
  std::ofstream(text) << ReadWholeFile(SourcePath("models/hearth-stories.txt")).substr(0, 1500);
  const ProgramResult packed = RunHearth({"pack", stories, "--text", text, "-o", learned});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_EQ(packed.err, "");
  for (const char* mode : {"auto", "gated", "predicted"}) {
    const ProgramResult plan =
        RunHearth({"plan", learned, "--memory", "2G", "--ctx", "128", "--mode", mode});
    EXPECT_EQ(plan.exit_code, 0) << plan.err;
    EXPECT_EQ(plan.err, "") << mode << ": nothing was learned again";
    EXPECT_THAT(plan.out, HasSubstr("tok/s"));
  }
  // The same text is no other text.
  const ProgramResult same = RunHearth(
      {"plan", learned, "--memory", "2G", "--ctx", "128", "--mode", "gated", "--text", text});
  EXPECT_EQ(same.exit_code, 0) << same.err;

  ASSERT_EQ(RunHearth({"pack", stories, "-o", plain, "--mode", "gated"}).exit_code, 0);
  const ProgramResult refused = RunHearth({"plan", plain, "--memory", "2G"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("give it a text to learn from, once: 'hearth "
                                     "plan " +
                                     plain + " --text FILE'"));
}

// Without a folder to keep it in the packed file is there all the same.
TEST_F(ModelPlanCommandTest, PackSaysWherePlanWillNeedAText) {
  const std::string text = folder_->Path("text"), packed = folder_->Path("unlearned.gguf");
  std::ofstream(text) << ReadWholeFile(SourcePath("models/hearth-stories.txt")).substr(0, 1500);
  std::ofstream(folder_->Path("no-folder")) << "";
  setenv("XDG_CACHE_HOME", folder_->Path("no-folder").c_str(), 1);
  const ProgramResult result = RunHearth(
      {"pack", SourcePath("models/hearth-stories-5m.gguf"), "--text", text, "-o", packed});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(packed));
  EXPECT_THAT(result.err, HasSubstr("warning: 'hearth plan' will need a --text for " + packed));
}

// Also where it has to be learned first what the model needs.
TEST_F(ModelPlanCommandTest, TheSmallestMemoryNamedWorks) {
  UseFreshCache("fresh");
  const ProgramResult refused = Plan({"--memory", "1M"});
  EXPECT_EQ(refused.exit_code, 1);
  const std::string words = "the smallest that can is ";
  const size_t begin = refused.err.find(words);
  EXPECT_NE(begin, std::string::npos) << refused.err;
  const std::string named = refused.err.substr(begin + words.size());
  const ProgramResult done = Plan({"--memory", named.substr(0, named.find('M') + 1)});
  EXPECT_EQ(done.exit_code, 0) << refused.err << done.err;
  setenv("XDG_CACHE_HOME", folder_->Path("cache").c_str(), 1);
}

TEST_F(ModelPlanCommandTest, PlansThatWereEditedAreRefusedByName) {
  Measure();
  const ProgramResult planned = Plan({"--memory", "4G", "-o", PlanPath()});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const auto good = nlohmann::json::parse(std::ifstream(PlanPath()));
  const auto refusal = [&](const std::function<void(nlohmann::json&)>& edit) {
    nlohmann::json document = good;
    edit(document);
    std::ofstream(folder_->Path("edited.json")) << document;
    const ProgramResult run = Run({"--plan", folder_->Path("edited.json")});
    EXPECT_EQ(run.exit_code, 1);
    return run.err;
  };
  using Json = nlohmann::json;
  EXPECT_THAT(refusal([](Json& d) { d["budget_bytes"] = 1000; }), HasSubstr("ledger"));
  EXPECT_THAT(refusal([](Json& d) { d["ledger"]["weights"] = uint64_t{1} << 50; }),
              HasSubstr("ledger"));
  EXPECT_THAT(refusal([](Json& d) { d["cores"]["compute"] = {4000}; }), HasSubstr("cores: "));
  EXPECT_THAT(refusal([](Json& d) { d["cores"]["compute"] = {0, 0}; }), HasSubstr("cores.compute"));
  EXPECT_THAT(refusal([](Json& d) { d["io_strategy"] = "whole"; }), HasSubstr("io_strategy"));
  EXPECT_THAT(refusal([](Json& d) { d["kv"]["context"] = 1 << 30; }),
              HasSubstr("made for at most"));
  EXPECT_THAT(refusal([](Json& d) { d["layers"][0]["ranges"]["pinned"][1] = 64; }),
              HasSubstr("layers[0].ranges"));
  EXPECT_THAT(refusal([](Json& d) { d["layers"].erase(0); }), HasSubstr("layers"));
  EXPECT_THAT(refusal([](Json& d) { d["layers"][0]["mode"] = "dense"; }),
              HasSubstr("layers that differ"));
  EXPECT_THAT(refusal([](Json& d) { d["hardware_hash"] = "0123456789abcdef"; }),
              HasSubstr("another machine"));
  EXPECT_THAT(refusal([](Json& d) { d["model_hash"] = "0123456789abcdef"; }),
              HasSubstr("another file"));
}

// What was learned is not learned again, unless that is what was asked for.
TEST_F(ModelPlanCommandTest, OtherTokensThanWereLearnedFromAreRefused) {
  Measure();
  ASSERT_EQ(Plan({"--memory", "4G"}).exit_code, 0);
  const auto plan = [](std::vector<std::string> more) {
    std::vector<std::string> words = {"plan", Model(), "--mode", "predicted", "--memory", "4G"};
    words.insert(words.end(), more.begin(), more.end());
    return RunHearth(words);
  };
  EXPECT_EQ(plan({}).exit_code, 0);
  EXPECT_EQ(plan({"--tokens", "64"}).exit_code, 0);
  const ProgramResult other = plan({"--tokens", "32"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("--record learns it again"));
  EXPECT_EQ(plan({"--text", folder_->Path("nowhere")}).exit_code, 1);
  EXPECT_EQ(plan({"--tokens", "32", "--record"}).exit_code, 0);
  EXPECT_EQ(plan({"--tokens", "64", "--record"}).exit_code, 0);
  // A damaged record is learned anew.
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_->Path("cache/hearth/accesses"))) {
    if (entry.path().extension() == ".trace") std::filesystem::resize_file(entry.path(), 100);
  }
  const ProgramResult anew = plan({"--tokens", "64"});
  EXPECT_EQ(anew.exit_code, 0);
  EXPECT_THAT(anew.err, HasSubstr("it is learned again"));
  EXPECT_THAT(plan({"--tokens", "64"}).err, IsEmpty());
}

// A plan must be judged by other tokens than it was made from.
TEST_F(ModelPlanCommandTest, LearnsFromTokensThatBenchNeverDecodes) {
  Measure();
  ASSERT_EQ(Plan({"--memory", "4G", "--record"}).exit_code, 0);
  std::string stem;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_->Path("cache/hearth/accesses"))) {
    if (entry.path().extension() == ".json") stem = entry.path().string();
  }
  stem.resize(stem.size() - 5);
  std::vector<TokenId> recorded;
  TraceReader trace(OpenFileReader(stem + ".trace"));
  for (TraceToken token; trace.Next(token);) recorded.push_back(token.id);
  ASSERT_EQ(recorded.size(), 64u);
  const GgufFile file = GgufFile::Open(Model());
  constexpr int64_t kVocabSize = 2000;
  for (uint64_t sequence = 0; sequence < 32; ++sequence) {
    const std::vector<TokenId> decoded = BenchTokens(file.metadata(), kVocabSize, 1024, sequence);
    // No eight tokens of one follow each other in the other.
    for (size_t i = 0; i + 8 <= recorded.size(); i += 8) {
      const auto begin = recorded.begin() + static_cast<ptrdiff_t>(i);
      EXPECT_EQ(std::search(decoded.begin(), decoded.end(), begin, begin + 8), decoded.end())
          << "sequence " << sequence << ", from token " << i;
    }
  }

  // A record of an earlier version, which did decode them, is made anew.
  nlohmann::json counts = nlohmann::json::parse(std::ifstream(stem + ".json"));
  const std::vector<TokenId> decoded = BenchTokens(file.metadata(), kVocabSize, 64);
  std::ostringstream hash;
  hash << std::hex << std::setw(16) << std::setfill('0')
       << Checksum(std::as_bytes(std::span(decoded)));
  const std::string own = std::exchange(counts["tokens_hash"], hash.str());
  std::ofstream(stem + ".json") << counts;
  const ProgramResult anew = Plan({"--memory", "4G"});
  EXPECT_EQ(anew.exit_code, 0);
  EXPECT_THAT(anew.err, HasSubstr("learning what 64 tokens need"));
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(stem + ".json"))["tokens_hash"], own);
}

// Before anything is downloaded.
TEST_F(ModelPlanCommandTest, ShapesArePlannedWithoutAFile) {
  Measure();
  const auto plan = [](const std::string& shape, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"plan", shape, "--ctx", "256", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  };
  const ProgramResult large = plan("mistral-7b", {"--memory", "5G"});
  ASSERT_EQ(large.exit_code, 0) << large.err;
  EXPECT_THAT(large.err, testing::HasSubstr("estimated from its shape"));
  const ProgramResult small = plan("mistral-7b", {"--memory", "2G"});
  ASSERT_EQ(small.exit_code, 0) << small.err;
  const auto speed = [](const ProgramResult& result) {
    return nlohmann::json::parse(result.out)["decode_tok_s"].get<double>();
  };
  EXPECT_GT(speed(large), speed(small)) << "the rest is read for every token";
  ExpectRefused(plan("mistral-7b", {"--memory", "2G", "-o", folder_->Path("x")}), 2, "--output");
  const std::string mixture = folder_->Path("mixture.json");
  std::ofstream(mixture) << R"({"arch": "llama", "hidden_size": 1024, "intermediate_size": 4096,
      "num_layers": 8, "num_heads": 8, "num_kv_heads": 2, "vocab_size": 1000, "num_experts": 8,
      "num_experts_per_token": 2})";
  EXPECT_EQ(plan(mixture, {"--memory", "2G"}).exit_code, 0) << "all of it fits";
  EXPECT_THAT(plan(mixture, {"--memory", "300M"}).err,
              testing::HasSubstr("only once the model is here"));
}

TEST_F(ModelPlanCommandTest, UsageAndImpossibleWishes) {
  EXPECT_EQ(Plan({"--cores", "0,x"}).exit_code, 2);
  EXPECT_EQ(Plan({"--cores", "4000"}).exit_code, 2);
  EXPECT_EQ(Plan({"--cores", "1-0"}).exit_code, 2);
  EXPECT_EQ(Plan({"--min-speed", "0"}).exit_code, 2);
  EXPECT_EQ(RunHearth({"plan", Model(), "--min-speed", "5", "--device-memory", "1G",
                       "--device-bandwidth", "1000", "--link-bandwidth", "10"})
                .exit_code,
            2);
  std::ofstream(folder_->Path("bad.json")) << "{\"model_hash\": 3}";
  const ProgramResult bad =
      RunHearth({"run", Model(), "--plan", folder_->Path("bad.json"), "-p", "x"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.err, HasSubstr("model_hash"));
  const ProgramResult foreign = Plan({"--hw", folder_->Path("bad.json")});
  EXPECT_EQ(foreign.exit_code, 1);
}

// A placement takes what doctor measured of a device, where the user says nothing else.
TEST_F(ModelPlanCommandTest, ADeviceThatWasMeasuredNeedsNoBandwidths) {
  using Json = nlohmann::json;
  UseFreshCache("with_device");
  const std::string path = folder_->Path("with_device/hearth/hardware.json");
  Json document = Json::parse(ReadWholeFile(path));
  const auto place = [&](std::vector<std::string> more) {
    std::ofstream(path) << document.dump();
    std::vector<std::string> arguments = {
        "plan", "opt-30b", "--device-memory", "8G", "--json", "--memory-bandwidth", "67.2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunHearth(arguments);
  };
  document["devices"] = Json::array();
  EXPECT_EQ(place({}).exit_code, 2);
  EXPECT_THAT(place({}).err, HasSubstr("has measured no device"));
  Json device = {{"index", 0},
                 {"name", "Card"},
                 {"kind", "gpu"},
                 {"vendor", "Maker"},
                 {"platform", "P"},
                 {"driver", "1"},
                 {"memory_bytes", 0},
                 {"max_buffer_bytes", 1 << 30},
                 {"local_bytes", 1 << 15},
                 {"compute_units", 16},
                 {"clock_mhz", 1000},
                 {"max_group_size", 256},
                 {"shares_memory", false},
                 {"has_half", true},
                 {"rates", Json::object()},
                 {"batches", Json::array()}};
  device["memory_bytes"] = int64_t{8} << 30;
  for (const auto& [name, rate] : std::map<std::string, double>{{"read_bytes_per_s", 9e11},
                                                                {"matvec_bytes_per_s", 8e11},
                                                                {"matmul_macs_per_s", 1e13},
                                                                {"upload_bytes_per_s", 2e10},
                                                                {"download_bytes_per_s", 1e10},
                                                                {"launch_seconds", 2e-5}}) {
    device["rates"][name] = {{"median", rate}, {"min", rate}, {"max", rate}};
  }
  document["devices"].push_back(device);
  const Json measured = Json::parse(place({}).out);
  EXPECT_DOUBLE_EQ(measured["device"]["gb_s"].get<double>(), 800);
  const Json same = Json::parse(
      place({"--device-bandwidth", "800", "--link-bandwidth", "10", "--link-latency", "20"}).out);
  EXPECT_EQ(measured["layers"], same["layers"]);
  EXPECT_DOUBLE_EQ(measured["sync_ms"].get<double>(), same["sync_ms"].get<double>());
  // What the user says goes first.
  const Json given = Json::parse(place({"--device-bandwidth", "500"}).out);
  EXPECT_DOUBLE_EQ(given["device"]["gb_s"].get<double>(), 500);
  document["devices"][0]["rates"].erase("launch_seconds");
  EXPECT_EQ(place({}).exit_code, 1);
  EXPECT_THAT(place({}).err, HasSubstr("launch_seconds"));
}

TEST_F(ModelPlanCommandTest, AModelOnTheHubIsPlannedByItsHeader) {
  Measure();
  HubServer server;
  server.Add("tester/tiny", "tiny-F32.gguf",
             ReadWholeFile(SourcePath("models/hearth-stories-5m.gguf")));
  setenv("HEARTH_MODELS", folder_->Path("models").c_str(), 1);
  setenv("HF_ENDPOINT", server.endpoint().c_str(), 1);
  setenv("no_proxy", "*", 1);
  const std::vector<std::string> plan = {"plan", "tester/tiny", "--memory", "4G", "--json"};
  const ProgramResult remote = RunHearth(plan);
  ASSERT_EQ(remote.exit_code, 0) << remote.err;
  EXPECT_EQ(server.TakeRanges().size(), 1u);
  EXPECT_TRUE(std::filesystem::is_empty(folder_->Path("models")));
  const ProgramResult refused = RunHearth({"plan", "tester/tiny", "--memory", "1M"});
  EXPECT_THAT(refused.err, HasSubstr("tester/tiny does not fit"));
  for (const char* flag : {"--text", "-o"}) {
    EXPECT_EQ(RunHearth({"plan", "tester/tiny", flag, PlanPath()}).exit_code, 2) << flag;
  }
  EXPECT_THAT(RunHearth({"plan", "tester/none"}).err, HasSubstr("no such public repository"));

  ASSERT_EQ(RunHearth({"get", "tester/tiny"}).exit_code, 0);
  const ProgramResult local = RunHearth(plan);
  const auto planned = nlohmann::json::parse(remote.out);
  EXPECT_EQ(planned.at("model_hash"), "0000000000000000");  // of weights that nobody has read
  const auto planned_here = nlohmann::json::parse(local.out);
  for (const char* key : {"io_strategy", "layers", "cores", "decode_tok_s", "miss_rate"}) {
    EXPECT_EQ(planned.at(key), planned_here.at(key)) << key;
  }
  for (const char* name : {"HEARTH_MODELS", "HF_ENDPOINT", "no_proxy"}) unsetenv(name);
}

}  // namespace
}  // namespace hearth
