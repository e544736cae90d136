// The embedded model through the C interface. For tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "hearth/hearth.h"

inline const std::string kEmbeddedModel = hearth::SourcePath("models/hearth-stories-5m.gguf");

inline hearth_options OneThread() {
  hearth_options options;
  hearth_options_init(&options);
  options.threads = 1;
  return options;
}

class CApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const hearth_options options = OneThread();
    ASSERT_EQ(hearth_load(kEmbeddedModel.c_str(), &options, &model_, &error_), HEARTH_OK)
        << error_.message;
  }
  void TearDown() override { hearth_free(model_); }

  std::vector<int32_t> Tokens(const std::string& text) {
    std::vector<int32_t> tokens(100);
    size_t count = 0;
    EXPECT_EQ(hearth_tokenize(model_, text.data(), text.size(), 1, tokens.data(), tokens.size(),
                              &count, &error_),
              HEARTH_OK);
    tokens.resize(count);
    return tokens;
  }

  hearth_model* model_ = nullptr;
  hearth_error error_ = {};
};
