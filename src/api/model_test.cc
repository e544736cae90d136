#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <filesystem>
#include <future>
#include <new>
#include <stdexcept>
#include <thread>

#include "base/test_data.h"
#include "engine/session/session.h"
#include "hearth/hearth.hpp"

namespace hearth::api {
namespace {

using ::testing::HasSubstr;

std::string Path() { return SourcePath("models/hearth-stories-5m.gguf"); }

ErrorCode CodeOf(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()), "");
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kInternal;
}

GenerateRequest Story(const Model& model, int64_t tokens, uint64_t seed = 3) {
  GenerateRequest request;
  request.prompt = model.Tokenize("Once upon a time", true);
  request.max_tokens = tokens;
  request.sampling.seed = seed;
  for (const TokenId id : {0, 1, 2, 2046, 2047}) request.sampling.logit_bias[id] = -INFINITY;
  return request;
}

TEST(ApiModelTest, GeneratesWhatASessionOfTheEngineDoes) {
  Model model = Model::Load(Path(), {.threads = 2});
  const GenerateRequest request = Story(model, 40);
  std::string streamed;
  const GenerateResult result = model.Generate(request, [&](std::string_view text) {
    streamed += text;
    return true;
  });
  const auto engine = Engine::Load(Path(), {.threads = 2});
  GenerateOptions options;
  options.max_tokens = 40;
  options.sampling.seed = 3;
  options.sampling.logit_bias = request.sampling.logit_bias;
  const auto expected = hearth::Session(*engine).Generate(request.prompt, options);
  EXPECT_EQ(result.text, expected.text);
  EXPECT_EQ(streamed, expected.text);
  EXPECT_EQ(result.outcome.generated, expected.token_ids);
  EXPECT_EQ(result.outcome.finish_reason, FinishReason::kLength);
}

TEST(ApiModelTest, ManyThreadsMayAskAtOnce) {
  Model model = Model::Load(Path(), {.threads = 2, .parallel = 3, .queue = 100});
  std::vector<std::string> alone, together(8);
  for (uint64_t i = 0; i < together.size(); ++i) {
    alone.push_back(model.Generate(Story(model, 25, i)).text);
  }
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < together.size(); ++i) {
    threads.emplace_back([&, i] { together[i] = model.Generate(Story(model, 25, i)).text; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
  const Stats stats = model.stats();
  EXPECT_GT(stats.generated_tokens, stats.decode_passes) << "they were computed together";
  EXPECT_GT(stats.ledger.at("kv cache"), 0u);
}

TEST(ApiModelTest, StopsWhenToldTo) {
  Model model = Model::Load(Path(), {.threads = 1});
  int pieces = 0;
  const GenerateResult stopped =
      model.Generate(Story(model, 400), [&](std::string_view) { return ++pieces < 3; });
  EXPECT_EQ(stopped.outcome.finish_reason, FinishReason::kCancelled);
  EXPECT_LT(stopped.outcome.generated.size(), 100u);
  struct Mine {};
  EXPECT_THROW(model.Generate(Story(model, 400), [](std::string_view) -> bool { throw Mine(); }),
               Mine);
  Session session(model);
  const GenerateResult cancelled = session.Generate(Story(model, 400), [&](std::string_view) {
    session.Cancel();
    return true;
  });
  EXPECT_EQ(cancelled.outcome.finish_reason, FinishReason::kCancelled);
}

TEST(ApiModelTest, WhoStoppedIsToldNoMore) {
  Model model = Model::Load(Path(), {.threads = 1});
  GenerateRequest request = Story(model, 400);
  // Every letter may begin a stop text: some text is held back until the end.
  for (char c = 'a'; c <= 'z'; ++c) request.stop.push_back(std::string(1, c) + "\x02\x03");
  int pieces = 0;
  std::string told;
  const GenerateResult stopped = model.Generate(request, [&](std::string_view text) {
    ++pieces;
    told += text;
    return false;
  });
  EXPECT_EQ(pieces, 1);
  EXPECT_GT(stopped.text.size(), told.size()) << "more came after it";
}

TEST(ApiModelTest, AListenerThatThrowsEndsItsRequestAlone) {
  Model model = Model::Load(Path(), {.threads = 1});
  std::promise<Outcome> no_memory, broken;
  const auto into = [](std::promise<Outcome>& promise) {
    return [&promise](const Outcome& outcome) { promise.set_value(outcome); };
  };
  model.Start(
      {Story(model, 50), Story(model, 50), Story(model, 50)},
      {{.on_token = [](auto, auto) { throw std::bad_alloc(); }, .on_done = into(no_memory)},
       {.on_token = [](auto, auto) { throw std::runtime_error("x"); }, .on_done = into(broken)},
       {}});
  EXPECT_EQ(no_memory.get_future().get().error->code(), ErrorCode::kOutOfBudget);
  EXPECT_EQ(broken.get_future().get().error->code(), ErrorCode::kInternal);
  EXPECT_EQ(model.Generate(Story(model, 5)).outcome.generated.size(), 5u);
}

TEST(ApiModelTest, TellsHowFarLoadingIsAndEndsWhereThatThrows) {
  std::vector<std::pair<uint64_t, uint64_t>> told;
  Model::Load(Path(), {.threads = 2, .on_progress = [&](uint64_t done, uint64_t total) {
                         told.emplace_back(done, total);
                       }});
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back().first, told.back().second);
  EXPECT_GT(told.back().second, uint64_t{1} << 20);
  struct Mine {};
  EXPECT_THROW(Model::Load(Path(), {.threads = 2, .on_progress = [](auto, auto) { throw Mine(); }}),
               Mine);
}

TEST(ApiModelTest, TellsHowFarAPromptIsAndFailsWhereThatThrows) {
  Model model = Model::Load(Path(), {.threads = 2});
  GenerateRequest request = Story(model, 2);
  while (request.prompt.size() < 300) request.prompt.push_back(request.prompt.back());
  std::vector<std::pair<int64_t, int64_t>> told;
  std::promise<Outcome> done, failed;
  Listener listener;
  listener.on_prefill = [&](int64_t some, int64_t all) { told.emplace_back(some, all); };
  listener.on_done = [&](const Outcome& outcome) { done.set_value(outcome); };
  model.Start({request}, {listener});
  EXPECT_FALSE(done.get_future().get().error);
  EXPECT_GE(told.size(), 2u) << "it takes more than one pass";
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), (std::pair<int64_t, int64_t>(300, 300)));
  request.prompt[0] = request.prompt[1];  // nothing of it is known
  listener.on_prefill = [](auto, auto) { throw std::runtime_error("x"); };
  listener.on_done = [&](const Outcome& outcome) { failed.set_value(outcome); };
  model.Start({request}, {listener});
  const Outcome outcome = failed.get_future().get();
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->code(), ErrorCode::kInternal);
  EXPECT_TRUE(outcome.generated.empty());
  EXPECT_EQ(model.Generate(Story(model, 5)).outcome.generated.size(), 5u);
}

TEST(ApiModelTest, KvCacheAndKernelsCanBeChosen) {
  const auto kv_bytes = [](const std::string& kv) {
    return Model::Load(Path(), {.threads = 1, .context = 128, .kv = kv})
        .stats()
        .ledger.at("kv cache");
  };
  // All of it but the list of pages.
  EXPECT_GT(static_cast<double>(kv_bytes("f32")), 1.99 * static_cast<double>(kv_bytes("f16")));
  // Heads of 32: codes with 6 bytes of scales and zeros.
  const auto f16 = static_cast<double>(kv_bytes("f16"));
  for (const auto& [kv, share] : {std::pair("k8v8", 70 / 128.0), std::pair("k4v8", 54 / 128.0),
                                  std::pair("k8", 100 / 128.0), std::pair("k4", 84 / 128.0)}) {
    EXPECT_NEAR(static_cast<double>(kv_bytes(kv)) / f16, share, 0.01) << kv;
  }
  EXPECT_EQ(Model::Load(Path(), {.threads = 1, .isa = "scalar"}).info().instruction_set, "scalar");
  for (const auto& [options, field] : {std::pair<LoadOptions, std::string>{{.kv = "f8"}, "kv"},
                                       {{.isa = "abacus"}, "isa"},
                                       {{.activations = "f32"}, "activations"},
                                       {{.activations = "f16"}, "activations"}}) {
    try {
      Model::Load(Path(), options);
      ADD_FAILURE() << field;
    } catch (const Error& error) {
      EXPECT_EQ(error.field(), field);
    }
  }
}

TEST(ApiModelTest, EmptyFunctionsAreNotCalled) {
  Model model = Model::Load(Path(), {.threads = 1});
  model.Start({Story(model, 3)}, {Listener()});
  model.StartEmbeddings({model.Tokenize("A fox.", true)}, {Model::EmbeddingFn()});
  EXPECT_FALSE(model.Embed(model.Tokenize("A fox.", true)).empty()) << "it goes on";
}

TEST(ApiModelTest, StatsSayOfEveryRequestUnderWay) {
  Model model = Model::Load(Path(), {.threads = 1});
  std::promise<void> in_token, go_on;
  model.Start({Story(model, 1)}, {{.on_token =
                                       [&](auto, auto) {
                                         in_token.set_value();
                                         go_on.get_future().wait();
                                       },
                                   .on_done = {}}});
  in_token.get_future().wait();
  // Both arrive at once; the first is dropped before the step in which the second starts.
  std::promise<int64_t> under_way;
  const std::vector<Ticket> tickets =
      model.Start({Story(model, 5), Story(model, 5)},
                  {{.on_token = {},
                    .on_done =
                        [&](const Outcome&) {
                          const Stats stats = model.stats();
                          under_way.set_value(stats.running + stats.waiting);
                        }},
                   {}});
  tickets[0].Cancel();
  go_on.set_value();
  EXPECT_GE(under_way.get_future().get(), 1);
}

TEST(ApiModelTest, ASessionIsNoLongerThanItsContext) {
  Model model = Model::Load(Path(), {.threads = 1, .context = 32});
  Session session(model);
  GenerateRequest request = Story(model, 100);
  session.Generate(request);
  EXPECT_EQ(session.history().size(), 32u);
  request.prompt.clear();
  EXPECT_EQ(session.Generate(request).outcome.finish_reason, FinishReason::kLength);
  EXPECT_EQ(session.history().size(), 32u);
}

TEST(ApiModelTest, ASessionGoesOnWhereItStopped) {
  Model model = Model::Load(Path(), {.threads = 1});
  GenerateRequest request = Story(model, 30);
  request.sampling.temperature = 0;
  const std::vector<TokenId> whole = model.Generate(request).outcome.generated;
  Session session(model);
  request.max_tokens = 10;
  session.Generate(request);
  request.prompt.clear();
  request.max_tokens = 20;
  const GenerateResult rest = session.Generate(request);
  EXPECT_EQ(rest.outcome.generated, std::vector<TokenId>(whole.begin() + 10, whole.end()));
  EXPECT_GE(rest.outcome.reused_tokens, 10);
  session.Truncate(3);
  EXPECT_EQ(session.history().size(), 3u);
}

TEST(ApiModelTest, AFullQueueIsBusyAndClosingEndsAll) {
  std::vector<std::promise<Outcome>> done(3);
  std::vector<std::future<Outcome>> outcomes;
  {
    Model model = Model::Load(Path(), {.threads = 1, .parallel = 1, .queue = 2});
    std::vector<GenerateRequest> requests(3, Story(model, 450));
    std::vector<Listener> listeners;
    for (auto& promise : done) {
      outcomes.push_back(promise.get_future());
      listeners.push_back({.on_token = {}, .on_done = [&promise](const Outcome& outcome) {
                             promise.set_value(outcome);
                           }});
    }
    model.Start(requests, listeners);
    EXPECT_EQ(CodeOf([&] { model.Start({Story(model, 1)}, {Listener()}); }), ErrorCode::kBusy);
  }
  for (auto& outcome : outcomes) {
    EXPECT_EQ(outcome.get().finish_reason, FinishReason::kCancelled);
  }
}

TEST(ApiModelTest, TokensAndChats) {
  const Model model = Model::Load(Path(), {.threads = 1});
  EXPECT_TRUE(model.info().can_chat);
  const auto tokens = model.Tokenize("A fox.");
  EXPECT_EQ(model.Detokenize(tokens), "A fox.");
  EXPECT_EQ(model.Tokenize("", true).size(), 1u);
  EXPECT_EQ(CodeOf([&] { model.TokenBytes(-1); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { model.Detokenize({1 << 20}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] {
              model.EncodeChat({{"user", std::string(100'000, 'a')}});
            }),
            ErrorCode::kContextFull);
  EXPECT_EQ(CodeOf([&] { model.Tokenize(std::string(100'000, 'a'), true); }),
            ErrorCode::kContextFull);
  EXPECT_FALSE(model.EncodeChat({{"user", "Hi"}}).stop.empty());
}

// The model knows nothing of Harmony: the grammar makes it write channels.
TEST(ApiModelTest, AnswersInHarmonyKeepToASchemaAndAreRead) {
  Model model = Model::Load(Path(), {.threads = 1, .chat_format = "harmony"});
  const ToolOptions tools = {.tools = {{.name = "wave", .description = "", .parameters = ""}},
                             .must_call = true};
  const ChatPrompt prompt = model.EncodeChat({{"user", "Hi"}}, tools);
  ASSERT_TRUE(prompt.thinking && prompt.thinking->has_channels);
  GenerateRequest request;
  request.prompt = prompt.tokens;
  request.max_tokens = 200;
  request.tools = prompt.tools;
  request.thinking = prompt.thinking;
  bool has_called = false;
  for (request.sampling.seed = 0; request.sampling.seed < 20 && !has_called;
       ++request.sampling.seed) {
    const GenerateResult result = model.Generate(request);
    AnswerReader reader(prompt.thinking, prompt.tools);
    std::string name, arguments;
    auto parts = reader.Push(result.text);
    for (AnswerPart& part : reader.Finish()) parts.push_back(std::move(part));
    for (const AnswerPart& part : parts) {
      EXPECT_NE(part.kind, AnswerPart::Kind::kText) << part.text;
      if (part.kind != AnswerPart::Kind::kCall) continue;
      name += part.name;
      arguments += part.text;
    }
    has_called = reader.ends_in_calls();
    if (!has_called) continue;
    EXPECT_EQ(name, "wave");
    std::erase(arguments, ' ');
    EXPECT_EQ(arguments, "{}");
  }
  EXPECT_TRUE(has_called) << "one of the seeds thinks for less than 200 tokens";
}

TEST(ApiModelTest, EmbeddingsHaveLengthOneAndDependOnTheText) {
  Model model = Model::Load(Path(), {.threads = 1});
  const auto fox = model.Embed(model.Tokenize("A fox ran.", true));
  const auto boat = model.Embed(model.Tokenize("The boat is red.", true));
  EXPECT_EQ(std::ssize(fox), model.info().embedding_size);
  double length = 0, product = 0;
  for (size_t i = 0; i < fox.size(); ++i) {
    length += static_cast<double>(fox[i]) * static_cast<double>(fox[i]);
    product += static_cast<double>(fox[i]) * static_cast<double>(boat[i]);
  }
  EXPECT_NEAR(length, 1, 1e-5);
  EXPECT_LT(product, 0.999);
  EXPECT_EQ(fox, model.Embed(model.Tokenize("A fox ran.", true)));
}

TEST(ApiModelTest, RequestsThatMakeNoSenseAreRefused) {
  Model model = Model::Load(Path(), {.threads = 1});
  const auto refused = [&](const std::function<void(GenerateRequest&)>& change) {
    GenerateRequest request = Story(model, 3);
    change(request);
    return CodeOf([&] { model.Generate(request); });
  };
  EXPECT_EQ(refused([](auto& r) { r.top_logprobs = -1; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](auto& r) { r.top_logprobs = 1001; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](auto& r) { r.max_tokens = 0; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](auto& r) { r.prompt.clear(); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](auto& r) { r.prompt[0] = -1; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](auto& r) { r.sampling.logit_bias[-1] = 1; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](auto& r) { r.sampling.logit_bias[1 << 20] = 1; }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused([](auto& r) { r.json_schema = "{"; }), ErrorCode::kInvalidArgument);
}

TEST(ApiModelTest, GrammarsCanBeMadeAhead) {
  Model model = Model::Load(Path(), {.threads = 2});
  const std::string schema = R"({"enum": ["yes", "no", "perhaps"]})";
  EXPECT_EQ(model.MakeGrammar(std::nullopt), nullptr);
  EXPECT_EQ(CodeOf([&] { model.MakeGrammar(R"({"contains": {}})"); }), ErrorCode::kUnsupported);
  GenerateRequest made_ahead = Story(model, 20);
  made_ahead.sampling.logit_bias.clear();  // answers end where the schema says so
  GenerateRequest made_by_start = made_ahead;
  made_by_start.json_schema = schema;
  std::thread([&] { made_ahead.grammar = model.MakeGrammar(schema); }).join();
  const std::string expected = model.Generate(made_by_start).text;
  EXPECT_THAT(expected, testing::AnyOf("\"yes\"", "\"no\"", "\"perhaps\""));
  // Twice: a request leaves the grammar as it was.
  for (int i = 0; i < 2; ++i) EXPECT_EQ(model.Generate(made_ahead).text, expected);
}

TEST(ApiModelTest, PlansSayTheRest) {
  EXPECT_EQ(CodeOf([] { Model::Load(Path(), {.plan = "/nowhere.json"}); }), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf([] { Model::Load(Path(), {.threads = 1, .plan = "/nowhere.json"}); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([] { Model::Load(Path(), {.plan = Path()}); }), ErrorCode::kCorrupt);
}

TEST(ApiModelTest, ASessionFolderOutlivesTheModel) {
  const std::string folder = testing::TempDir() + "api_sessions." + std::to_string(getpid());
  std::filesystem::remove_all(folder);
  const LoadOptions options = {.threads = 1, .session_folder = folder};
  GenerateRequest request;
  {
    Model model = Model::Load(Path(), options);
    EXPECT_EQ(CodeOf([&] { Model::Load(Path(), options); }), ErrorCode::kInvalidArgument);
    Session session(model);
    session.Generate(Story(model, 100));
    request = Story(model, 20);
    request.prompt = session.history();
    model.Close(std::chrono::seconds(10));
    EXPECT_EQ(model.stats().sessions_saved, 1);
    EXPECT_EQ(CodeOf([&] { model.Generate(request); }), ErrorCode::kCancelled);
    model.Close(std::chrono::seconds(10));
  }
  Model model = Model::Load(Path(), options);
  const Outcome again = model.Generate(request).outcome;
  EXPECT_EQ(again.reused_tokens, std::ssize(request.prompt) - 1);
  EXPECT_EQ(model.stats().sessions_restored, 1);
  EXPECT_EQ(again.generated,
            Model::Load(Path(), {.threads = 1}).Generate(request).outcome.generated);
  std::filesystem::remove_all(folder);
}

TEST(ApiModelTest, NeuronsOfMatricesAreNotDrawn) {
  Model model = Model::Load(Path(), {.threads = 1});
  model.WatchNeurons();
  model.Generate(Story(model, 5));
  EXPECT_EQ(model.WatchNeurons().layers, 0);
}

TEST(ApiModelTest, LoadErrorsSayWhatIsWrong) {
  EXPECT_EQ(CodeOf([] { Model::Load("/nowhere.gguf"); }), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf([] { Model::Load(Path(), {.memory_bytes = 1 << 20}); }),
            ErrorCode::kOutOfBudget);
  EXPECT_EQ(CodeOf([] { Model::Load(Path(), {.mode = "fast"}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([] { Model::Load(Path(), {.parallel = 0}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([] { Model::Load(Path(), {.queue = -1}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([] { Model::Load(Path(), {.queue = INT_MAX}); }), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth::api
