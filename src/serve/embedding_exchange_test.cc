// Requests for more embeddings than the model computes, or queues, at once.
#include "serve/embedding_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/test_data.h"
#include "serve/test_posted_runs.h"

namespace hearth::serve {
namespace {

using ::testing::HasSubstr;
using Texts = std::vector<std::vector<api::TokenId>>;

struct KeptReply : public Reply {
  void Send(Response response) override { last = std::move(response); }
  void BeginStream() override {}
  void SendEvent(std::string_view, std::string_view) override {}
  void EndStream() override {}

  std::optional<Response> last;
};

class EmbeddingExchangeTest : public ::testing::Test {
 protected:
  std::shared_ptr<EmbeddingExchange> NewExchange() {
    return std::make_shared<EmbeddingExchange>(context_, "m", false, reply_);
  }
  // What is answered, with the requests ended.
  Response Embed(const Texts& texts) {
    NewExchange()->Start(texts);
    while (context_.active > 0) posted_.RunOne();
    return reply_->last.value_or(Response());
  }
  RequestError Refusal(const Texts& texts) {
    try {
      Embed(texts);
    } catch (const RequestError& error) {
      while (context_.active > 0) posted_.RunOne();
      return error;
    }
    ADD_FAILURE() << "nothing was refused";
    return {Status::kOk, ""};
  }

  PostedRuns posted_;
  std::shared_ptr<KeptReply> reply_ = std::make_shared<KeptReply>();
  api::Model model_ = api::Model::Load(SourcePath("tests/goldens/llama.gguf"),
                                       {.threads = 1, .parallel = 2, .queue = 1});
  Metrics metrics_;
  ExchangeContext context_{{.post = [this](auto run) { posted_.Post(std::move(run)); }, .work = {}},
                           model_,
                           metrics_,
                           std::make_shared<Allowance>(size_t{1} << 20)};
};

TEST_F(EmbeddingExchangeTest, TextsRunInTurn) {
  Texts texts;
  for (api::TokenId id = 3; id < 43; ++id) texts.push_back({1, id});
  const auto data = nlohmann::json::parse(Embed(texts).body)["data"];
  ASSERT_EQ(data.size(), 40u);
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(data[i]["index"], i);
    EXPECT_EQ(data[i]["embedding"].get<std::vector<float>>(), model_.Embed(texts[i])) << i;
  }
}

TEST_F(EmbeddingExchangeTest, ErrorsNameTheField) {
  const RequestError unknown = Refusal({{1}, {1 << 30}});
  EXPECT_EQ(unknown.param(), "input");
  EXPECT_THAT(unknown.what(), HasSubstr("input: token id"));
  EXPECT_FALSE(reply_->last) << "whoever started it says so";
  EXPECT_EQ(Refusal({{}}).param(), "input");
  const auto most = static_cast<size_t>(kMostEmbeddingNumbers / model_.info().embedding_size);
  EXPECT_EQ(Refusal(Texts(most + 1, {1})).param(), "input");
  // One that comes late fails the request that has started.
  Texts late(20, {1});
  late.push_back({1 << 30});
  const Response response = Embed(late);
  EXPECT_EQ(response.status, Status::kBadRequest);
  EXPECT_EQ(nlohmann::json::parse(response.body)["error"]["param"], "input");
}

TEST_F(EmbeddingExchangeTest, WhoeverIsGoneStartsNoMore) {
  const auto exchange = NewExchange();
  exchange->Start(Texts(500, {1, 2, 3}));
  exchange->Abandon();
  while (context_.active > 0) posted_.RunOne();
  EXPECT_FALSE(reply_->last);
  EXPECT_LE(model_.stats().prompt_tokens, 6);
}

}  // namespace
}  // namespace hearth::serve
