#include "sparsity/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>

#include "base/checksum.h"
#include "base/error.h"
#include "base/test_data.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

struct List {
  int32_t expert = 0;
  std::vector<int32_t> neurons;
  bool operator==(const List&) const = default;
};
struct Token {
  int32_t id = 0;
  bool starts = false;
  std::vector<List> lists;
  bool operator==(const Token&) const = default;
};

TraceHeader HeaderFor(int64_t layers, int64_t experts, int64_t per_token, int64_t neurons) {
  return {.model_name = "a model",
          .model_hash = 0x123456789abcdef0,
          .activation = FfnActivation::kDRelu,
          .num_layers = layers,
          .num_experts = experts,
          .num_experts_per_token = per_token,
          .intermediate_size = neurons};
}

// Ascending; of any density from none to all.
std::vector<int32_t> RandomNeurons(int64_t neurons, std::mt19937& random) {
  const double density[] = {0, 0.01, 0.1, 0.5, 0.97, 1};
  std::bernoulli_distribution active(density[random() % std::size(density)]);
  std::vector<int32_t> list;
  for (int64_t j = 0; j < neurons; ++j) {
    if (active(random)) list.push_back(static_cast<int32_t>(j));
  }
  return list;
}

std::vector<Token> RandomTokens(const TraceHeader& header, size_t count, std::mt19937& random) {
  std::vector<Token> tokens(count);
  for (Token& token : tokens) {
    token.id = static_cast<int32_t>(random() >> 1);
    for (int64_t layer = 0; layer < header.num_layers; ++layer) {
      std::vector<int32_t> experts(static_cast<size_t>(std::max<int64_t>(header.num_experts, 1)));
      std::iota(experts.begin(), experts.end(), 0);
      std::shuffle(experts.begin(), experts.end(), random);
      experts.resize(static_cast<size_t>(header.lists_per_layer()));
      std::sort(experts.begin(), experts.end());
      for (const int32_t expert : experts) {
        token.lists.push_back({expert, RandomNeurons(header.intermediate_size, random)});
      }
    }
  }
  return tokens;
}

class TraceTest : public testing::Test {
 protected:
  ~TraceTest() override { std::filesystem::remove(path_); }

  // In batches of these sizes, each the start of a sequence, and FFN by FFN as a pass computes.
  void Write(const TraceHeader& header, std::vector<Token>& tokens, size_t batch_tokens) {
    TraceWriter writer(path_, header);
    for (size_t begin = 0; begin < tokens.size(); begin += batch_tokens) {
      const auto batch =
          std::span(tokens).subspan(begin, std::min(batch_tokens, tokens.size() - begin));
      std::vector<int32_t> ids;
      for (const Token& token : batch) ids.push_back(token.id);
      batch[0].starts = true;
      writer.BeginBatch(ids, true);
      for (int64_t list = 0; list < header.lists_per_token(); ++list) {
        for (size_t t = 0; t < batch.size(); ++t) {
          const List& l = batch[t].lists[static_cast<size_t>(list)];
          writer.Append(static_cast<int64_t>(t), l.expert, l.neurons);
        }
      }
      writer.EndBatch();
    }
    EXPECT_EQ(writer.tokens(), tokens.size());
    writer.Finish();
    EXPECT_EQ(writer.written_bytes(), std::filesystem::file_size(path_));
  }

  std::vector<std::byte> Bytes() const {
    const std::string text = ReadWholeFile(path_);
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return {begin, begin + text.size()};
  }

  static std::vector<Token> ReadAll(std::unique_ptr<BlockReader> file) {
    TraceReader reader(std::move(file));
    std::vector<Token> tokens;
    TraceToken token;
    while (reader.Next(token)) {
      tokens.push_back({token.id, token.starts_sequence, {}});
      for (int64_t i = 0; i < token.num_lists(); ++i) {
        const auto neurons = token.neurons(i);
        tokens.back().lists.push_back({token.expert(i), {neurons.begin(), neurons.end()}});
      }
    }
    EXPECT_EQ(tokens.size(), reader.num_tokens());
    EXPECT_FALSE(reader.Next(token)) << "stays at the end";
    return tokens;
  }

  static std::string Refusal(std::vector<std::byte> bytes) {
    try {
      ReadAll(MakeMemoryReader("it", std::move(bytes)));
    } catch (const Error& error) {
      return std::string(ErrorCodeName(error.code())) + ": " + error.what();
    }
    return "taken";
  }

  const std::string path_ = testing::TempDir() + "/trace." + std::to_string(getpid());
};

TEST_F(TraceTest, ReplaysWhatWasWritten) {
  std::mt19937 random(3);
  for (const TraceHeader& header :
       {HeaderFor(1, 0, 0, 1), HeaderFor(3, 0, 0, 7), HeaderFor(2, 0, 0, 8), HeaderFor(2, 6, 2, 33),
        HeaderFor(1, 1, 1, 300), HeaderFor(5, 0, 0, 1024)}) {
    for (const size_t batch : {1u, 4u, 100u}) {
      std::vector<Token> tokens = RandomTokens(header, 9, random);
      Write(header, tokens, batch);
      EXPECT_EQ(ReadAll(OpenFileReader(path_)), tokens);
      const TraceReader reader(OpenFileReader(path_));
      EXPECT_EQ(reader.header().model_name, header.model_name);
      EXPECT_EQ(reader.header().model_hash, header.model_hash);
      EXPECT_EQ(reader.header().activation, header.activation);
      EXPECT_EQ(reader.header().num_layers, header.num_layers);
      EXPECT_EQ(reader.header().num_experts, header.num_experts);
      EXPECT_EQ(reader.header().lists_per_layer(), header.lists_per_layer());
      EXPECT_EQ(reader.header().intermediate_size, header.intermediate_size);
    }
  }
}

TEST_F(TraceTest, LongBatchesBecomeSeveralBlocks) {
  const TraceHeader header = HeaderFor(2, 0, 0, 400000);
  std::vector<Token> tokens(40);
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (int layer = 0; layer < 2; ++layer) {
      List list;
      for (int32_t j = static_cast<int32_t>(t); j < 400000; j += 2) list.neurons.push_back(j);
      tokens[t].lists.push_back(std::move(list));
    }
  }
  Write(header, tokens, 40);
  EXPECT_GT(std::filesystem::file_size(path_), 3u << 20);
  EXPECT_LT(std::filesystem::file_size(path_), 5u << 20) << "bitmaps, not numbers";
  EXPECT_EQ(ReadAll(OpenFileReader(path_)), tokens);
}

TEST_F(TraceTest, IsAsSmallAsItsListsAllow) {
  const TraceHeader header = HeaderFor(1, 0, 0, 8000);
  const auto size = [&](int32_t step) {
    std::vector<Token> tokens(1);
    tokens[0].lists.resize(1);
    for (int32_t j = 0; j < 8000; j += step) tokens[0].lists[0].neurons.push_back(j);
    Write(header, tokens, 1);
    return std::filesystem::file_size(path_);
  };
  const auto all = size(1);
  EXPECT_LT(all, 150u) << "a list of all neurons has no entries";
  EXPECT_LE(size(100), all + 80 + 8) << "a byte per neuron";
  EXPECT_LE(size(2), all + 1000 + 8) << "a bit per neuron";
}

TEST_F(TraceTest, AnEmptyTraceIsOne) {
  std::vector<Token> none;
  Write(HeaderFor(1, 0, 0, 4), none, 1);
  EXPECT_THAT(ReadAll(OpenFileReader(path_)), testing::IsEmpty());
}

TEST_F(TraceTest, EveryTruncationAndEveryFlippedByteIsRefused) {
  std::mt19937 random(11);
  const TraceHeader header = HeaderFor(2, 3, 2, 9);
  std::vector<Token> tokens = RandomTokens(header, 6, random);
  Write(header, tokens, 3);
  const std::vector<std::byte> bytes = Bytes();
  ASSERT_EQ(Refusal(bytes), "taken");
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(Refusal({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}),
                HasSubstr("corrupt: it: "))
        << size;
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int bit : {0, 4, 7}) {
      std::vector<std::byte> altered = bytes;
      altered[i] ^= static_cast<std::byte>(1 << bit);
      EXPECT_NE(Refusal(altered), "taken") << i;
    }
  }
}

// A file of one block with this payload, all checksums right.
std::vector<std::byte> Forge(const std::string& path, const TraceHeader& header, uint32_t tokens,
                             const std::vector<int>& payload) {
  {
    TraceWriter writer(path, header);
    writer.Finish();
  }
  const std::string empty = ReadWholeFile(path);
  std::vector<std::byte> bytes(empty.size() - 32);
  std::memcpy(bytes.data(), empty.data(), bytes.size());
  const auto block = [&](uint32_t count, const std::vector<std::byte>& content) {
    const size_t begin = bytes.size();
    const uint64_t size = content.size();
    bytes.resize(begin + 16);
    std::memcpy(bytes.data() + begin, &count, 4);
    std::memcpy(bytes.data() + begin + 8, &size, 8);
    bytes.insert(bytes.end(), content.begin(), content.end());
    const uint64_t sum = Checksum(std::span(bytes).subspan(begin));
    bytes.resize(bytes.size() + 8);
    std::memcpy(bytes.data() + bytes.size() - 8, &sum, 8);
  };
  std::vector<std::byte> content;
  for (const int value : payload) content.push_back(static_cast<std::byte>(value));
  block(tokens, content);
  std::vector<std::byte> total(8);
  std::memcpy(total.data(), &tokens, 4);
  block(0, total);
  return bytes;
}

TEST_F(TraceTest, BlocksThatMakeNoSenseAreRefused) {
  const TraceHeader dense = HeaderFor(1, 0, 0, 5), experts = HeaderFor(1, 3, 2, 5);
  const auto refusal = [&](const TraceHeader& header, uint32_t tokens,
                           const std::vector<int>& payload) {
    return Refusal(Forge(path_, header, tokens, payload));
  };
  // Number of a list: its count times 4, and its kind: 0 distances, 1 bitmap, 2 all.
  EXPECT_EQ(refusal(dense, 1, {1, 2 * 4, 0, 3}), "taken");  // neurons 0 and 4
  EXPECT_THAT(refusal(dense, 1, {1, 2 * 4, 0, 4}), HasSubstr("neuron: expected at most 3"));
  EXPECT_THAT(refusal(dense, 1, {1, 2 * 4, 4, 0}), HasSubstr("inside the FFN"));
  EXPECT_THAT(refusal(dense, 1, {1, 6 * 4, 0, 0, 0, 0, 0, 0}), HasSubstr("neurons of a list"));
  EXPECT_THAT(refusal(dense, 1, {1, 2 * 4, 0}), HasSubstr("the end of the block"));
  EXPECT_THAT(refusal(dense, 1, {1, 1 * 4, 0, 0}), HasSubstr("nothing after its tokens"));
  EXPECT_EQ(refusal(dense, 1, {1, 2 * 4 + 1, 0b10001}), "taken");
  EXPECT_THAT(refusal(dense, 1, {1, 2 * 4 + 1, 0b100001}), HasSubstr("neuron: expected at most 4"));
  EXPECT_THAT(refusal(dense, 1, {1, 3 * 4 + 1, 0b10001}), HasSubstr("bits of a list"));
  EXPECT_THAT(refusal(dense, 1, {1, 2 * 4 + 1}), HasSubstr("a bitmap"));
  EXPECT_EQ(refusal(dense, 1, {1, 5 * 4 + 2}), "taken");
  EXPECT_THAT(refusal(dense, 1, {1, 4 * 4 + 2}), HasSubstr("a list of all"));
  EXPECT_THAT(refusal(dense, 1, {1, 3}), HasSubstr("kind of list"));
  EXPECT_THAT(refusal(dense, 1, {255, 255, 255, 255, 255, 255, 255, 255, 255, 255}),
              HasSubstr("a longer one"));
  EXPECT_THAT(refusal(dense, 9, {1, 0}), HasSubstr("9 in 2 bytes"));
  EXPECT_EQ(refusal(experts, 1, {1, 0, 0, 2, 0}), "taken");
  EXPECT_THAT(refusal(experts, 1, {1, 1, 0, 1, 0}), HasSubstr("expert: expected 2 or more"));
  EXPECT_THAT(refusal(experts, 1, {1, 0, 0, 3, 0}), HasSubstr("expert: expected at most 2"));
}

TEST_F(TraceTest, ListsThatAreMissingAreAnError) {
  TraceWriter writer(path_, HeaderFor(2, 0, 0, 5));
  const int32_t id = 1;
  writer.BeginBatch({&id, 1}, true);
  writer.Append(0, 0, {});
  EXPECT_THROW(writer.EndBatch(), Error);
}

TEST_F(TraceTest, SizesThatNoReaderTakesAreRefused) {
  EXPECT_THROW(TraceWriter(path_, HeaderFor(5000, 0, 0, 5)), Error);
  EXPECT_THROW(TraceWriter(path_, HeaderFor(1, 2, 3, 5)), Error);
  EXPECT_THROW(TraceWriter(path_, HeaderFor(4096, 0, 0, 1 << 20)), Error);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace hearth
