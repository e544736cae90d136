// Conversations whose KV pages go to disk and come back, with restarts between: the same answers,
// to the bit, as of an engine that had room for all and never stopped.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/test_data.h"
#include "engine/session/batch_scheduler.h"
#include "prepare/pack/test_pack_models.h"

namespace hearth {
namespace {

using Clock = SessionKeeper::Clock;

// What a request told.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;  // of the likeliest five at every place
  int64_t reused = 0;
  bool is_done = false;

  bool operator==(const Answer&) const = default;
};

// An engine, its scheduler, and perhaps a folder for sessions.
class Server {
 public:
  Server(const std::string& model, int64_t sequences, const std::string& folder = "",
         const BatchLimits& limits = {}, KvCodec kv = KvCodec::kF16) {
    EngineOptions options{.threads = 2, .context = kContext, .kv_sequences = sequences};
    options.kv_codec = kv;
    options.mode = model.ends_with("packed.gguf") ? std::optional(FfnMode::kGated) : std::nullopt;
    engine_ = Engine::Load(model, options);
    if (!folder.empty()) {
      sessions_ = OpenSessions(
          *engine_, {.folder = folder, .warn = [this](const std::string&) { ++warnings_; }});
    }
    scheduler_ = std::make_unique<BatchScheduler>(*engine_, limits, sessions_.get());
  }

  void Ask(std::vector<TokenId> prompt, int64_t tokens, uint64_t seed, Answer* answer) {
    BatchRequest request;
    request.prompt = std::move(prompt);
    request.generate.max_tokens = tokens;
    request.generate.sampling.seed = seed;
    request.generate.sampling.logit_bias = {{0, -1e9f}, {1, -1e9f}, {2, -1e9f}};
    request.generate.top_logprobs = 5;
    request.on_token = [answer](std::string_view, const std::vector<ScoredToken>& scores) {
      for (const ScoredToken& scored : scores) {
        for (const TokenScore& top : scored.top) answer->logprobs.push_back(top.logprob);
      }
    };
    request.on_done = [answer](const BatchOutcome& outcome) {
      EXPECT_FALSE(outcome.error.has_value());
      answer->tokens = outcome.generated;
      answer->reused = outcome.reused_tokens;
      answer->is_done = true;
    };
    scheduler_->Check(request);
    scheduler_->Add(std::move(request));
  }
  void Run() {
    while (!scheduler_->is_idle()) scheduler_->Step();
  }
  // As many sequences as were not saved.
  int64_t Stop(std::chrono::milliseconds patience = std::chrono::seconds(20)) {
    return scheduler_->SaveSessions(Clock::now() + patience);
  }

  static constexpr int64_t kContext = 256;
  BatchScheduler& scheduler() { return *scheduler_; }
  Engine& engine() { return *engine_; }
  SessionCounts counts() const { return sessions_->counts(); }
  int warnings() const { return warnings_; }

 private:
  std::atomic<int> warnings_{0};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SessionKeeper> sessions_;
  std::unique_ptr<BatchScheduler> scheduler_;
};

class SavedSessionsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestFolder("saved_sessions");
    SynthesizeModel(ParseShape(ShapeText(128, 512, R"("activation": "drelu")"), "packed"),
                    {.threads = 2, .planted = PlantedOptions{}, .packed = true}, Packed());
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static std::string Packed() { return folder_->Path("packed.gguf"); }
  static std::string Stories() { return SourcePath("models/hearth-stories-5m.gguf"); }
  std::string Sessions() const {
    return folder_->Path(testing::UnitTest::GetInstance()->current_test_info()->name());
  }

  static std::vector<TokenId> Words(std::mt19937& random, int64_t count) {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(3 + random() % 250));
    return tokens;
  }

  // Random conversations with a server that has room for one of them and is stopped now and then.
  void Converse(const std::string& model, uint32_t seed, KvCodec kv = KvCodec::kF16) {
    std::mt19937 random(seed);
    Server calm(model, 20, "", {}, kv);
    auto busy = std::make_unique<Server>(model, 1, Sessions(), BatchLimits{}, kv);
    const auto beginning = Words(random, 10);
    std::vector<std::vector<TokenId>> chats(5, beginning);
    int64_t restored = 0, saved = 0;
    for (int turn = 0; turn < 24; ++turn) {
      std::vector<TokenId>& chat = chats[random() % chats.size()];
      if (chat.size() > 150) chat = beginning;
      if (random() % 4 == 0) chat.resize(10 + random() % (chat.size() - 9));  // says it otherwise
      const auto more = Words(random, 1 + static_cast<int64_t>(random() % 50));
      chat.insert(chat.end(), more.begin(), more.end());
      const auto count = static_cast<int64_t>(1 + random() % 40);
      Answer expected, answer;
      calm.Ask(chat, count, turn, &expected);
      calm.Run();
      busy->Ask(chat, count, turn, &answer);
      busy->Run();
      ASSERT_TRUE(answer.is_done);
      // Less than a page is not fetched from a file.
      ASSERT_LE(answer.reused, expected.reused);
      ASSERT_GT(answer.reused + KvLayout::kPageTokens, expected.reused);
      answer.reused = expected.reused;
      ASSERT_EQ(answer, expected) << "seed " << seed << ", turn " << turn;
      chat.insert(chat.end(), answer.tokens.begin(), answer.tokens.end());
      if (random() % 4 != 0) continue;
      EXPECT_EQ(busy->Stop(), 0);
      restored += busy->counts().restored;
      saved += busy->counts().saved;
      EXPECT_EQ(busy->warnings(), 0);
      busy.reset();  // and its folder is free
      busy = std::make_unique<Server>(model, 1, Sessions(), BatchLimits{}, kv);
    }
    EXPECT_GT(restored, 0);
    EXPECT_GT(saved, 0);
  }

  static TestFolder* folder_;
};
TestFolder* SavedSessionsTest::folder_ = nullptr;

TEST_F(SavedSessionsTest, RandomConversationsWithRestartsAreAsWithout) {
  for (uint32_t seed = 1; seed <= 2; ++seed) {
    Converse(Stories(), seed);
    std::filesystem::remove_all(Sessions());
    Converse(Packed(), seed);
    std::filesystem::remove_all(Sessions());
  }
}

TEST_F(SavedSessionsTest, EveryKvCodecComesBackAsItWas) {
  for (size_t codec = 2; codec < kKvCodecs.size(); ++codec) {
    Converse(Stories(), 3, static_cast<KvCodec>(codec));
    std::filesystem::remove_all(Sessions());
  }
}

// They are left alone: what they saved is computed again.
TEST_F(SavedSessionsTest, SessionsOfAnotherCodecAreNotUsed) {
  std::mt19937 random(6);
  const std::vector<TokenId> chat = Words(random, 100);
  Answer answer;
  for (const KvCodec kv : {KvCodec::kF16, KvCodec::kK8V8, KvCodec::kF16}) {
    Server server(Stories(), 1, Sessions(), {}, kv);
    EXPECT_EQ(server.warnings(), answer.is_done ? 1 : 0) << "of the others";
    server.Ask(chat, 5, 1, &answer);
    server.Run();
    EXPECT_EQ(server.Stop(), 0);
  }
  EXPECT_GE(answer.reused, 64) << "the first one's are still there";
  Server other(Stories(), 1, Sessions(), {}, KvCodec::kK4);
  other.Ask(chat, 5, 1, &answer);
  other.Run();
  EXPECT_EQ(answer.reused, 0);
}

TEST_F(SavedSessionsTest, ManyThatComeTogetherGetTheirPagesAndMemoryIsKept) {
  std::mt19937 random(4);
  std::vector<std::vector<TokenId>> chats;
  for (int i = 0; i < 8; ++i) chats.push_back(Words(random, 70 + 10 * i));
  const auto ask = [&](Server& server) {
    std::vector<Answer> answers(chats.size());
    for (size_t i = 0; i < chats.size(); ++i) server.Ask(chats[i], 20, i, &answers[i]);
    while (!server.scheduler().is_idle()) {
      server.scheduler().Step();
      EXPECT_LE(server.scheduler().prefixes().promised_pages(),
                server.engine().kv_pool().num_pages());
    }
    return answers;
  };
  std::vector<Answer> first;
  {
    Server server(Stories(), 3, Sessions());
    first = ask(server);
    EXPECT_EQ(server.Stop(), 0);
  }
  for (size_t i = 0; i < chats.size(); ++i) {
    chats[i].insert(chats[i].end(), first[i].tokens.begin(), first[i].tokens.end());
    chats[i].push_back(9);
  }
  Server server(Stories(), 3, Sessions());
  const std::vector<Answer> second = ask(server);
  for (size_t i = 0; i < chats.size(); ++i) {
    // All but the last token, which no pass has computed.
    EXPECT_EQ(second[i].reused, std::ssize(chats[i]) - 2) << i;
  }
  EXPECT_EQ(server.counts().restored, 8);
  EXPECT_EQ(server.scheduler().num_running(), 0);
}

TEST_F(SavedSessionsTest, OnesThatBeginAlikeReadTheirBeginningOnce) {
  std::mt19937 random(5);
  const auto text = Words(random, 150);
  Answer ignored;
  {
    Server server(Stories(), 3, Sessions());
    server.Ask(text, 1, 0, &ignored);
    server.Run();
    server.Stop();
  }
  Server server(Stories(), 6, Sessions());
  std::vector<Answer> answers(5);
  for (Answer& answer : answers) server.Ask(text, 5, 0, &answer);
  server.Run();
  for (const Answer& answer : answers) EXPECT_EQ(answer.reused, 149);
  EXPECT_EQ(server.counts().restored, 1);
}

TEST_F(SavedSessionsTest, WhatIsDamagedOrGoneIsComputed) {
  std::mt19937 random(6);
  const auto text = Words(random, 150);
  Answer expected;
  {
    Server server(Stories(), 1, Sessions());
    server.Ask(text, 10, 0, &expected);
    server.Run();
    server.Stop();
  }
  for (const bool is_gone : {false, true}) {
    Server server(Stories(), 1, Sessions());
    for (const auto& file : std::filesystem::directory_iterator(Sessions())) {
      if (file.path().extension() != ".session") continue;
      if (is_gone) {
        std::filesystem::remove(file.path());
        continue;
      }
      std::fstream damaged(file.path(), std::ios::in | std::ios::out | std::ios::binary);
      damaged.seekp(static_cast<std::streamoff>(file.file_size()) - 1000);
      damaged << "damaged";
    }
    Answer answer;
    server.Ask(text, 10, 0, &answer);
    server.Run();
    EXPECT_EQ(answer, expected) << "nothing was reused either time";
    EXPECT_EQ(server.warnings(), is_gone ? 0 : 1);
    EXPECT_EQ(server.Stop(), 0);
  }
}

TEST_F(SavedSessionsTest, ADiskThatIsStuckKeepsNobodyWaiting) {
  std::mt19937 random(9);
  const auto text = Words(random, 150);
  Answer first, ignored;
  {
    Server server(Stories(), 1, Sessions());
    server.Ask(text, 1, 0, &first);
    server.Run();
    server.Stop();
  }
  std::string path;
  for (const auto& file : std::filesystem::directory_iterator(Sessions())) {
    if (file.path().extension() == ".session") path = file.path();
  }
  std::filesystem::remove(path);
  // Whoever opens it to write waits for a reader.
  path += "." + std::to_string(getpid()) + ".partial";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  Server server(Stories(), 4, Sessions(), {.most_prefixes = 1});
  server.Ask(text, 1, 0, &first);
  server.Run();
  server.Ask(Words(random, 100), 1, 0, &ignored);  // takes its place in the cache
  server.Run();
  auto longer = text;
  longer.insert(longer.end(), first.tokens.begin(), first.tokens.end());
  longer.push_back(9);
  Answer answer;
  server.Ask(longer, 5, 0, &answer);
  server.Run();
  EXPECT_EQ(answer.reused, 150) << "what is being saved is still in memory";
  EXPECT_EQ(server.counts().restored, 0);
  EXPECT_GE(server.Stop(std::chrono::milliseconds(50)), 1);
  EXPECT_EQ(server.engine().kv_pool().free_pages(), server.engine().kv_pool().num_pages());
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_GE(reader, 0);
  while (std::filesystem::exists(path)) std::this_thread::yield();  // given up
  close(reader);
}

TEST_F(SavedSessionsTest, CancelledRequestsGiveTheirPagesBack) {
  std::mt19937 random(7);
  const auto text = Words(random, 200);
  Answer ignored;
  {
    Server server(Stories(), 1, Sessions());
    server.Ask(text, 1, 0, &ignored);
    server.Run();
    server.Stop();
  }
  for (int steps = 0; steps < 4; ++steps) {
    Server server(Stories(), 1, Sessions());
    server.Ask(text, 30, 0, &ignored);
    for (int i = 0; i < steps; ++i) server.scheduler().Step();
    server.scheduler().CancelAll();
    EXPECT_TRUE(server.scheduler().is_idle());
    server.Stop();
    EXPECT_EQ(server.engine().kv_pool().free_pages(), server.engine().kv_pool().num_pages());
  }
}

TEST_F(SavedSessionsTest, WhatTheTimeToStopIsTooShortForGivesItsPagesBack) {
  std::mt19937 random(8);
  std::vector<std::vector<TokenId>> prompts;
  std::vector<Answer> answers(4);
  int64_t lost = 0;
  {
    Server server(Stories(), 4, Sessions());
    for (Answer& answer : answers) {
      prompts.push_back(Words(random, 100));
      server.Ask(prompts.back(), 5, 0, &answer);
    }
    server.Run();
    lost = server.Stop(std::chrono::seconds(-1));
    EXPECT_EQ(server.engine().kv_pool().free_pages(), server.engine().kv_pool().num_pages());
  }
  // What it did not call lost is there, whole.
  Server server(Stories(), 4, Sessions());
  const int64_t kept = server.counts().files;
  EXPECT_GE(kept + lost, 4);
  EXPECT_EQ(server.warnings(), 0);
  for (size_t i = 0; i < prompts.size(); ++i) {
    Answer again;
    server.Ask(prompts[i], 5, 0, &again);
    server.Run();
    EXPECT_EQ(again.tokens, answers[i].tokens);
  }
  EXPECT_EQ(server.counts().restored, kept);
}

}  // namespace
}  // namespace hearth
