// Who is let in, for what, without a model.
#include "serve/gate.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace hearth::serve {
namespace {

// The status of a refusal; kOk where it is let pass.
Status Ask(const Gate& gate, const RequestHead& head) {
  try {
    gate.CheckHead(head);
    return Status::kOk;
  } catch (const RequestError& error) {
    return error.status();
  }
}

TEST(GateTest, ComparesInConstantTimeAndRight) {
  EXPECT_TRUE(EqualInConstantTime("secret", "secret"));
  EXPECT_TRUE(EqualInConstantTime("", ""));
  for (const char* other : {"", "s", "secre", "secrets", "Secret", "secret\n", "terces"}) {
    EXPECT_FALSE(EqualInConstantTime("secret", other)) << other;
    EXPECT_FALSE(EqualInConstantTime(other, "secret")) << other;
  }
  EXPECT_FALSE(EqualInConstantTime("aa", "aaaa"));
}

TEST(GateTest, PathsAreFoundWithoutTheirVersionOrWithOneThatTheyDoNotHave) {
  EXPECT_EQ(Gate::RoutePath("/chat/completions?a=1"), "/v1/chat/completions");
  EXPECT_EQ(Gate::RoutePath("/v1/tokenize"), "/tokenize");
  EXPECT_EQ(Gate::RoutePath("/models/a"), "/v1/models/a");
  for (const char* path : {"/v1/v1/models", "/v1/", "/v1", "/none"}) {
    EXPECT_EQ(Gate::RoutePath(path), path);
    EXPECT_EQ(Gate::CountedPath(path), "other");
  }
  EXPECT_EQ(Gate::CountedPath("/page/main.js"), "/");
  EXPECT_EQ(Gate::CountedPath("/health"), "/health");
}

TEST(GateTest, EndpointsFollowFromMethodAndPath) {
  const Gate gate({});
  EXPECT_EQ(gate.EndpointOf({.method = "POST", .target = "/v1/messages/count_tokens"}),
            Endpoint::kCountTokens);
  EXPECT_EQ(gate.EndpointOf({.method = "GET", .target = "/lora-adapters"}), Endpoint::kAdapters);
  EXPECT_EQ(gate.EndpointOf({.method = "POST", .target = "/lora-adapters"}),
            Endpoint::kSetAdapters);
  EXPECT_EQ(gate.EndpointOf({.method = "HEAD", .target = "/health"}), Endpoint::kHealth);
  EXPECT_EQ(gate.EndpointOf({.method = "GET", .target = "/v1/models/a model"}), Endpoint::kModel);
  EXPECT_EQ(Gate::ModelOf("/v1/models/owner/a%20model:Q8_0"), "owner/a model:Q8_0");
  EXPECT_EQ(gate.EndpointOf({.method = "GET", .target = "/"}), std::nullopt);
}

TEST(GateTest, KeysOpenWhatIsThereAndHideWhatIsNot) {
  Gate gate({.keys = {"one", "two"}});
  EXPECT_EQ(Ask(gate, {.method = "GET", .target = "/health"}), Status::kOk);
  EXPECT_EQ(Ask(gate, {.method = "GET", .target = "/v1/models"}), Status::kUnauthorized);
  EXPECT_EQ(Ask(gate, {.method = "GET", .target = "/none"}), Status::kUnauthorized);
  EXPECT_EQ(Ask(gate, {.method = "GET", .target = "/none", .authorization = "bearer  two"}),
            Status::kNotFound);
  EXPECT_EQ(Ask(gate, {.method = "GET", .target = "/v1/models/m", .api_key = "one"}), Status::kOk);
  EXPECT_EQ(Ask(gate, {.method = "GET", .target = "/v1/models/m"}), Status::kUnauthorized);
  EXPECT_EQ(Ask(gate, {.method = "POST", .target = "/v1/models/m", .api_key = "one"}),
            Status::kMethodNotAllowed);
  EXPECT_EQ(Ask(gate, {.method = "PUT", .target = "/tokenize", .api_key = "one"}),
            Status::kMethodNotAllowed);
  gate.Stop();
  EXPECT_EQ(Ask(gate, {.method = "POST", .target = "/tokenize", .api_key = "one"}),
            Status::kUnavailable);
  EXPECT_EQ(Ask(gate, {.method = "GET", .target = "/v1/models", .api_key = "one"}), Status::kOk);
}

}  // namespace
}  // namespace hearth::serve
