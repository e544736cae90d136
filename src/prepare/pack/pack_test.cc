#include "prepare/pack/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <limits>
#include <set>

#include "base/error.h"
#include "kernels/dequantize.h"
#include "prepare/pack/bundle_encoder.h"
#include "prepare/pack/test_pack_models.h"

namespace hearth {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PackTest : public ::testing::Test {
 protected:
  // Packs "m" to "p" and returns it opened and checked.
  GgufFile Pack(const PackOptions& options) {
    const GgufFile source = GgufFile::Open(folder_.Path("m"));
    result_ = PackModel(source, options, folder_.Path("p"));
    GgufFile packed = GgufFile::Open(folder_.Path("p"));
    CheckPackedFile(packed);
    EXPECT_EQ(result_.file_bytes, packed.file_bytes());
    return packed;
  }

  // The message that packing fails with, after which there must be nothing but the source.
  std::string Refusal(const PackOptions& options, ErrorCode code,
                      const PackProgressFn& progress = {}) {
    const std::vector<std::string> before = folder_.Files();
    std::string message = "accepted";
    try {
      PackModel(GgufFile::Open(folder_.Path("m")), options, folder_.Path("p"), progress);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      message = error.what();
    }
    EXPECT_EQ(folder_.Files(), before);
    return message;
  }

  TestFolder folder_{"hearth_pack"};
  PackResult result_;
};

// The three rows of every neuron of an FFN, from the source, as its bundle should hold them.
class ExpectedRows {
 public:
  ExpectedRows(const GgufFile& source, int64_t layer, const FfnSpec& ffn, int64_t hidden,
               DType quant)
      : hidden_(hidden), neurons_(ffn.intermediate_size), quant_(quant) {
    const std::string suffix = ffn.num_experts > 0 ? "_exps.weight" : ".weight";
    const std::string prefix = "blk." + std::to_string(layer) + ".ffn_";
    gate_ = &source.GetTensor(prefix + "gate" + suffix);
    up_ = &source.GetTensor(prefix + "up" + suffix);
    gate_bytes_ = ReadAll(source, *gate_);
    up_bytes_ = ReadAll(source, *up_);
    const GgufTensor& down = source.GetTensor(prefix + "down" + suffix);
    const std::vector<std::byte> bytes = ReadAll(source, down);
    down_.resize(down.num_weights());
    kernels::Dequantize(down.dtype, bytes.data(), static_cast<int64_t>(down_.size()), down_.data());
  }

  std::vector<std::byte> Gate(int64_t expert, int64_t neuron) const {
    return Row(*gate_, gate_bytes_, expert * neurons_ + neuron);
  }
  std::vector<std::byte> Up(int64_t expert, int64_t neuron) const {
    return Row(*up_, up_bytes_, expert * neurons_ + neuron);
  }
  std::vector<std::byte> Down(int64_t expert, int64_t neuron) const {
    std::vector<float> column;
    for (int64_t r = 0; r < hidden_; ++r) {
      column.push_back(down_[static_cast<size_t>((expert * hidden_ + r) * neurons_ + neuron)]);
    }
    std::vector<std::byte> out(RowBytes(quant_, column.size()));
    kernels::Quantize(quant_, column.data(), hidden_, out.data());
    return out;
  }

 private:
  std::vector<std::byte> Row(const GgufTensor& tensor, const std::vector<std::byte>& bytes,
                             int64_t row) const {
    const auto cols = static_cast<size_t>(hidden_);
    std::vector<std::byte> out(RowBytes(quant_, cols));
    kernels::Convert(tensor.dtype,
                     bytes.data() + static_cast<size_t>(row) * RowBytes(tensor.dtype, cols),
                     hidden_, quant_, out.data());
    return out;
  }

  int64_t hidden_;
  int64_t neurons_;
  DType quant_;
  const GgufTensor* gate_;
  const GgufTensor* up_;
  std::vector<std::byte> gate_bytes_;
  std::vector<std::byte> up_bytes_;
  std::vector<float> down_;
};

// Every bundle of every FFN against the source, through the order that the file states.
void ExpectBundlesOf(const GgufFile& source, const GgufFile& packed, DType quant) {
  const ModelSpec spec = ReadModelSpec(packed);
  for (int64_t l = 0; l < spec.num_layers; ++l) {
    const FfnSpec& ffn = spec.layers[static_cast<size_t>(l)].ffn;
    const GgufTensor& tensor = packed.GetTensor(BundleTensorName(l));
    const BundleLayout layout = ReadBundleLayout(packed.metadata(), spec.hidden_size, tensor.ne[0]);
    ASSERT_EQ(layout, MakeBundleLayout(quant, spec.hidden_size));
    const auto experts = std::max<int64_t>(ffn.num_experts, 1);
    ASSERT_EQ(tensor.ne[1], static_cast<uint64_t>(ffn.intermediate_size));
    ASSERT_EQ(tensor.ne[2], static_cast<uint64_t>(experts));
    ASSERT_EQ(tensor.num_dims, ffn.num_experts > 0 ? 3 : 2);
    const ExpectedRows expected(source, l, ffn, spec.hidden_size, quant);
    const auto order = ReadValues<int32_t>(packed, BundleOrderName(l));
    const std::vector<std::byte> bundles = ReadAll(packed, tensor);
    const auto row_of = [&](std::span<const std::byte> bundle, BundleRole role) {
      const BundlePart& part = layout.Part(role);
      std::vector<std::byte> row(RowBytes(quant, static_cast<size_t>(spec.hidden_size)));
      ReadBundleRow(part, spec.hidden_size, bundle, row.data());
      return row;
    };
    for (int64_t e = 0; e < experts; ++e) {
      std::set<int32_t> seen;
      for (int64_t slot = 0; slot < ffn.intermediate_size; ++slot) {
        const auto index = static_cast<size_t>(e * ffn.intermediate_size + slot);
        const int32_t neuron = order[index];
        ASSERT_TRUE(seen.insert(neuron).second);
        const auto bundle = std::span(bundles).subspan(index * layout.stride, layout.stride);
        ASSERT_TRUE(BundleIsIntact(layout, bundle));
        ASSERT_EQ(row_of(bundle, BundleRole::kGate), expected.Gate(e, neuron)) << neuron;
        ASSERT_EQ(row_of(bundle, BundleRole::kUp), expected.Up(e, neuron)) << neuron;
        ASSERT_EQ(row_of(bundle, BundleRole::kDown), expected.Down(e, neuron)) << neuron;
      }
      ASSERT_EQ(*seen.begin(), 0);
      ASSERT_EQ(*seen.rbegin(), ffn.intermediate_size - 1);
    }
  }
}

// What is not in bundles is there as it was.
void ExpectRestCopied(const GgufFile& source, const GgufFile& packed) {
  for (const GgufTensor& tensor : source.tensors()) {
    const bool in_bundle = tensor.name.find("ffn_gate.") != std::string::npos ||
                           tensor.name.find("ffn_gate_exps") != std::string::npos ||
                           tensor.name.find("ffn_up") != std::string::npos ||
                           tensor.name.find("ffn_down") != std::string::npos;
    const GgufTensor* copy = packed.FindTensorOrNull(tensor.name);
    ASSERT_EQ(copy == nullptr, in_bundle) << tensor.name;
    if (in_bundle) continue;
    EXPECT_EQ(copy->dtype, tensor.dtype);
    EXPECT_EQ(copy->ne, tensor.ne);
    EXPECT_EQ(ReadAll(packed, *copy), ReadAll(source, tensor)) << tensor.name;
  }
  for (const auto& [key, value] : source.metadata().values()) {
    EXPECT_TRUE(packed.metadata().Has(key)) << key;
  }
  EXPECT_EQ(packed.metadata().GetUint(kSourceHashKey), ModelHash(source));
}

TEST_F(PackTest, EveryShapeAndTypeReadsBack) {
  struct Case {
    int64_t hidden, ffn;
    const char* more;
  };
  // Sizes around blocks, row groups and tiles; 77 and 300 neurons are no whole blocks.
  const Case floats[] = {{32, 77, kDenseShape}, {96, 300, kDenseShape}, {544, 64, kExpertShape}};
  const Case blocks[] = {{64, 288, kDenseShape}, {160, 96, kExpertShape}};
  const auto check = [&](const Case& c, DType stored) {
    MakeModel(folder_.Path("m"), ShapeText(c.hidden, c.ffn, c.more), stored);
    const GgufFile source = GgufFile::Open(folder_.Path("m"));
    const ModelProfile profile = MakeProfile(source);
    for (const DType quant : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kF16}) {
      SCOPED_TRACE(testing::Message() << c.hidden << " x " << c.ffn << " " << NameOf(stored)
                                      << " to " << NameOf(quant));
      const GgufFile packed = Pack({.profile = &profile, .quant = quant, .threads = 2});
      ExpectBundlesOf(source, packed, quant);
      ExpectRestCopied(source, packed);
    }
  };
  for (const Case& c : floats) {
    for (const DType stored : {DType::kF32, DType::kF16, DType::kBF16}) check(c, stored);
  }
  for (const Case& c : blocks) {
    for (const DType stored : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) check(c, stored);
  }
}

TEST_F(PackTest, TypesWithoutRowGroupsAreConverted) {
  MakeModel(folder_.Path("plain"), ShapeText(256, 512, kExpertShape), DType::kQ8_0);
  for (const DType stored : {DType::kQ4_K, DType::kQ5_0, DType::kQ6_K}) {
    for (const char* role : {"gate", "down"}) {
      SCOPED_TRACE(testing::Message() << NameOf(stored) << " " << role);
      Retype(folder_.Path("plain"), folder_.Path("m"), role, stored);
      const GgufFile source = GgufFile::Open(folder_.Path("m"));
      const ModelProfile profile = MakeProfile(source);
      const GgufFile packed = Pack({.profile = &profile, .quant = DType::kQ8_0});
      ExpectBundlesOf(source, packed, DType::kQ8_0);
    }
  }
}

TEST_F(PackTest, TheBundleTypeFollowsTheGates) {
  struct Case {
    DType stored, expected;
  };
  for (const Case& c : {Case{DType::kQ4_0, DType::kQ4_0}, Case{DType::kQ4_1, DType::kQ4_1},
                        Case{DType::kQ8_0, DType::kQ8_0}, Case{DType::kF16, DType::kQ8_0},
                        Case{DType::kBF16, DType::kQ8_0}, Case{DType::kF32, DType::kQ8_0}}) {
    MakeModel(folder_.Path("m"), ShapeText(64, 64, kDenseShape), c.stored);
    Pack({});
    EXPECT_EQ(result_.quant, c.expected) << NameOf(c.stored);
    EXPECT_EQ(result_.layout, MakeBundleLayout(c.expected, 64));
  }
  MakeModel(folder_.Path("plain"), ShapeText(256, 256, kDenseShape), DType::kQ4_0);
  Retype(folder_.Path("plain"), folder_.Path("m"), "gate", DType::kQ6_K);
  Pack({});
  EXPECT_EQ(result_.quant, DType::kQ8_0);
}

TEST_F(PackTest, NeuronsLieByRateAndThenByIndex) {
  for (const char* more : {kDenseShape, kExpertShape}) {
    MakeModel(folder_.Path("m"), ShapeText(64, 96, more), DType::kF16);
    ModelProfile profile = MakeProfile(GgufFile::Open(folder_.Path("m")));
    profile.ffns[1].tokens = 0;  // an FFN that no token reached
    std::fill(profile.ffns[1].active.begin(), profile.ffns[1].active.end(), 0);
    const GgufFile packed = Pack({.profile = &profile});
    std::vector<int32_t> order;
    std::vector<float> rates;
    for (int l = 0; l < 2; ++l) {
      const auto more_order = ReadValues<int32_t>(packed, BundleOrderName(l));
      const auto more_rates = ReadValues<float>(packed, BundleRateName(l));
      order.insert(order.end(), more_order.begin(), more_order.end());
      rates.insert(rates.end(), more_rates.begin(), more_rates.end());
    }
    ASSERT_EQ(order.size(), profile.ffns.size() * 96);
    for (size_t i = 0; i < order.size(); ++i) {
      const FfnProfile& ffn = profile.ffns[i / 96];
      const auto active = [&](size_t at) { return ffn.active[static_cast<size_t>(order[at])]; };
      const float expected =
          ffn.tokens == 0 ? 0 : static_cast<float>(static_cast<double>(active(i)) / 997.0);
      EXPECT_EQ(rates[i], expected);
      if (i % 96 == 0) continue;
      EXPECT_TRUE(active(i - 1) > active(i) ||
                  (active(i - 1) == active(i) && order[i - 1] < order[i]))
          << i;
    }
    EXPECT_EQ(packed.metadata().GetUint("hearth.profile.tokens"), 1000u);
  }
}

TEST_F(PackTest, WithoutAProfileNothingMoves) {
  MakeModel(folder_.Path("m"), ShapeText(64, 96, kExpertShape), DType::kQ4_0);
  const GgufFile packed = Pack({});
  const auto order = ReadValues<int32_t>(packed, BundleOrderName(1));
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<int32_t>(i % 96));
  EXPECT_EQ(packed.FindTensorOrNull(BundleRateName(0)), nullptr);
  EXPECT_FALSE(packed.metadata().Has("hearth.profile.tokens"));
  ExpectBundlesOf(GgufFile::Open(folder_.Path("m")), packed, DType::kQ4_0);
}

TEST_F(PackTest, SameBytesForEveryThreadCountAndMemory) {
  for (const char* more : {kDenseShape, kExpertShape}) {
    // More neurons than the shortest range, so that little memory means several.
    MakeModel(folder_.Path("m"), ShapeText(64, 2500, more), DType::kF16);
    const ModelProfile profile = MakeProfile(GgufFile::Open(folder_.Path("m")));
    PackOptions options{.profile = &profile, .quant = DType::kQ4_0};
    Pack(options);
    const std::string expected = folder_.Bytes("p");
    const double error = result_.down_error;
    EXPECT_GT(error, 0.01);
    EXPECT_LT(error, 0.2);
    for (const int threads : {2, 3, 5}) {
      options.threads = threads;
      Pack(options);
      EXPECT_TRUE(folder_.Bytes("p") == expected) << threads;
      EXPECT_EQ(result_.down_error, error);
    }
    // The least that a refusal names does it, and is kept.
    options.memory_bytes = 1;
    const std::string refusal = Refusal(options, ErrorCode::kOutOfBudget);
    EXPECT_THAT(refusal, AllOf(HasSubstr("memory: "), HasSubstr("the smallest that can is ")));
    const size_t at = refusal.find("can is ") + 7;
    options.memory_bytes = std::stoull(refusal.substr(at)) << 20;
    Pack(options);
    EXPECT_TRUE(folder_.Bytes("p") == expected);
    EXPECT_LE(result_.peak_bytes, *options.memory_bytes);
  }
}

TEST_F(PackTest, SplitSetsBecomeOneFile) {
  MakeModel(folder_.Path("whole"), ShapeText(64, 96, kDenseShape), DType::kQ8_0);
  const GgufFile whole = GgufFile::Open(folder_.Path("whole"));
  // Every second tensor in the second file.
  for (uint32_t part = 0; part < 2; ++part) {
    GgufMetadata metadata = part == 0 ? whole.metadata() : GgufMetadata();
    metadata.Set("split.no", {GgufType::kUint16, uint64_t{part}});
    metadata.Set("split.count", {GgufType::kUint16, uint64_t{2}});
    metadata.SetInt32("split.tensors.count", static_cast<int32_t>(whole.tensors().size()));
    std::vector<GgufTensorDecl> decls;
    for (size_t i = part; i < whole.tensors().size(); i += 2) {
      const GgufTensor& tensor = whole.tensors()[i];
      decls.push_back(
          {tensor.name, tensor.dtype,
           std::vector<uint64_t>(tensor.ne.begin(), tensor.ne.begin() + tensor.num_dims)});
    }
    GgufWriter writer(folder_.Path("s-0000" + std::to_string(part + 1) + "-of-00002.gguf"),
                      metadata, decls);
    for (size_t i = part; i < whole.tensors().size(); i += 2) {
      writer.Append(ReadAll(whole, whole.tensors()[i]));
    }
    writer.Finish();
  }
  const GgufFile split = GgufFile::Open(folder_.Path("s-00001-of-00002.gguf"));
  PackModel(split, {}, folder_.Path("p"));
  const GgufFile packed = GgufFile::Open(folder_.Path("p"));
  CheckPackedFile(packed);
  ExpectBundlesOf(whole, packed, DType::kQ8_0);
  for (const auto& [key, value] : packed.metadata().values()) {
    EXPECT_FALSE(key.starts_with("split.")) << key;
  }
}

TEST_F(PackTest, CancellingLeavesNothingBehind) {
  MakeModel(folder_.Path("m"), ShapeText(64, 96, kDenseShape), DType::kQ8_0);
  for (const int calls_before : {0, 1, 5}) {
    int calls = 0;
    const auto cancel = [&](uint64_t done, uint64_t total) {
      EXPECT_LE(done, total);
      if (calls++ >= calls_before) throw Error(ErrorCode::kCancelled, "p", "interrupted");
    };
    EXPECT_THAT(Refusal({.threads = 2}, ErrorCode::kCancelled, cancel), HasSubstr("interrupted"));
  }
}

TEST_F(PackTest, AFullDiskLeavesNothingBehind) {
  MakeModel(folder_.Path("m"), ShapeText(256, 512, kDenseShape), DType::kF16);
  // A file that may not grow further fails as one on a full disk does.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  for (const rlim_t limit : {rlim_t{10}, rlim_t{300000}, rlim_t{1200000}}) {
    const rlimit tight{limit, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &tight);
    const std::string message = Refusal({}, ErrorCode::kIo);
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_THAT(message, AllOf(HasSubstr("cannot write"), HasSubstr(folder_.Path("p"))));
    EXPECT_THAT(message, testing::Not(HasSubstr("partial")));
  }
  std::signal(SIGXFSZ, SIG_DFL);
}

TEST_F(PackTest, SourcesThatCannotBePackedAreNamed) {
  MakeModel(folder_.Path("m"), ShapeText(64, 96, kDenseShape), DType::kF16);
  Pack({});
  std::filesystem::rename(folder_.Path("p"), folder_.Path("m"));
  EXPECT_THAT(Refusal({}, ErrorCode::kUnsupported), HasSubstr("packed file already"));
  MakeModel(folder_.Path("m"), ShapeText(80, 96, kDenseShape), DType::kF16);
  EXPECT_THAT(Refusal({}, ErrorCode::kUnsupported), HasSubstr("multiple of 32"));
  MakeModel(folder_.Path("m"), ShapeText(64, 96, kDenseShape), DType::kF16);
  EXPECT_THAT(Refusal({.quant = DType::kQ6_K}, ErrorCode::kInvalidArgument), HasSubstr("Q6_K"));
  try {
    PackModel(GgufFile::Open(folder_.Path("m")), {}, folder_.Path("m"));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("is the file to pack"));
  }
  EXPECT_NO_THROW(GgufFile::Open(folder_.Path("m")));
}

// A file of F32 weights with one of them changed in the last row of a matrix.
void SpoilWeight(const std::string& path, const std::string& tensor, float weight) {
  uint64_t at = 0;
  {
    const GgufFile file = GgufFile::Open(path);
    const GgufTensor& found = *file.FindTensorOrNull(tensor);
    at = found.offset + found.bytes - sizeof(weight);
  }
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file.write(reinterpret_cast<const char*>(&weight), sizeof(weight));
}

TEST_F(PackTest, WeightsThatAreNoNumbersAreRefused) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (const char* role : {"gate", "up", "down"}) {
    const std::string name = std::string("blk.1.ffn_") + role + ".weight";
    for (const DType quant : {DType::kQ4_0, DType::kQ8_0, DType::kF16}) {
      for (const auto& [weight, says] :
           {std::pair(kNan, "no numbers"), std::pair(kInfinite, "no numbers"),
            std::pair(3e38f, "too large for")}) {
        SCOPED_TRACE(testing::Message() << name << " " << weight << " in " << NameOf(quant));
        MakeModel(folder_.Path("m"), ShapeText(64, 96, kDenseShape), DType::kF32);
        SpoilWeight(folder_.Path("m"), name, weight);
        EXPECT_THAT(Refusal({.quant = quant}, ErrorCode::kCorrupt),
                    AllOf(HasSubstr(name), HasSubstr(says)));
      }
    }
  }
}

TEST_F(PackTest, ProfilesOfOtherModelsAreRefused) {
  MakeModel(folder_.Path("m"), ShapeText(64, 96, kExpertShape), DType::kF16);
  const ModelProfile good = MakeProfile(GgufFile::Open(folder_.Path("m")));
  const auto refusal = [&](const std::function<void(ModelProfile&)>& change) {
    ModelProfile bad = good;
    change(bad);
    return Refusal({.profile = &bad}, ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(refusal([](ModelProfile& p) { ++p.model_hash; }), HasSubstr("hash of the model"));
  EXPECT_THAT(refusal([](ModelProfile& p) { p.num_layers = 3; }), HasSubstr("layers"));
  EXPECT_THAT(refusal([](ModelProfile& p) { p.num_experts = 0; }), HasSubstr("experts"));
  EXPECT_THAT(refusal([](ModelProfile& p) { p.ffns.pop_back(); }), HasSubstr("FFNs"));
  EXPECT_THAT(refusal([](ModelProfile& p) { p.ffns[3].active.pop_back(); }), HasSubstr("neurons"));
  Pack({.profile = &good});
}

}  // namespace
}  // namespace hearth
