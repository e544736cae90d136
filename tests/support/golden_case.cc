#include "golden_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_data.h"
#include "pass/test_passes.h"

namespace hearth {

namespace {

// Another folder of goldens, as tools/check_convert.py makes one.
constexpr char kFolderVariable[] = "HEARTH_GOLDENS";

std::string GoldenFolder() {
  const char* other = std::getenv(kFolderVariable);
  return other != nullptr ? std::string(other) : SourcePath("tests/goldens");
}

}  // namespace

std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  std::error_code missing;  // no names: the test program then says that nothing was instantiated
  for (const auto& entry : std::filesystem::directory_iterator(GoldenFolder(), missing)) {
    if (entry.path().extension() == ".gguf") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

GoldenCase LoadGolden(const std::string& name) {
  const std::string base = GoldenFolder() + "/" + name;
  std::ifstream file(base + ".json");
  const nlohmann::json json = nlohmann::json::parse(file);
  GoldenCase golden;
  golden.name = name;
  golden.model_path = base + ".gguf";
  golden.prompt = json["prompt"].get<std::vector<TokenId>>();
  golden.decode = json["decode"].get<std::vector<TokenId>>();
  golden.positions = json["positions"].get<std::vector<int64_t>>();
  golden.vocab = json["vocab_size"].get<int64_t>();
  golden.logits.resize(golden.positions.size() * static_cast<size_t>(golden.vocab));
  std::ifstream raw(GoldenFolder() + "/" + json["file"].get<std::string>(), std::ios::binary);
  raw.read(reinterpret_cast<char*>(golden.logits.data()),
           static_cast<std::streamsize>(golden.logits.size() * sizeof(float)));
  EXPECT_TRUE(raw.good()) << name;
  return golden;
}

GoldenRunner::GoldenRunner(const GoldenCase& golden, const RunSetup& setup)
    : golden_(golden), setup_(setup), compute_(setup.isa, setup.threads) {
  const GgufFile file = GgufFile::Open(golden.model_path);
  LoadPlan plan = PlanLoad(file);
  if (setup.change_spec) setup.change_spec(plan.spec);
  ModelWeights* weights = plan.weights.get();
  StreamedFfnMatrices matrices;
  if (setup.extents_in_memory > 0) matrices = StreamedFfnMatrices::TakeFrom(plan, file);
  model_ =
      Model::Load(file, std::move(plan), Tokenizer::FromGguf(file.metadata()), budget_, compute_);
  if (setup.change_weights) setup.change_weights(*weights);
  const PassLimits limits{.max_tokens = 64, .max_context = 128, .kv_codec = setup.kv};
  pool_ = std::make_unique<KvPool>(budget_, KvLayoutFor(model_->spec(), setup.kv), 512);
  if (setup.extents_in_memory > 0) {
    const ExtentPlan extents{.cache_slots = setup.extents_in_memory, .read_buffers = 2};
    streamed_ = matrices.Open(budget_, extents, {});
    streamed_->Fill(compute_, [](uint64_t, uint64_t) {});
  }
  pass_ = std::make_unique<TransformerPass>(model_->spec(), model_->weights(), compute_, budget_,
                                            limits, StreamedWeights{.matrices = streamed_.get()});
}

void GoldenRunner::Step(KvSequence& kv, std::span<const TokenId> tokens,
                        ActivationSelector& selector, PassObserver* observer) {
  const int64_t first = kv.length();
  const BatchSequence sequence{&kv, tokens};
  pass_->Run(ShapeOf(sequence), selector, observer);
  for (int64_t i = 0; i < static_cast<int64_t>(tokens.size()); ++i) {
    if (!std::binary_search(golden_.positions.begin(), golden_.positions.end(), first + i)) {
      continue;
    }
    const FloatView row = pass_->Logits(i, 1);
    logits_.insert(logits_.end(), row.row(0), row.row(0) + row.cols);
  }
}

std::vector<float> GoldenRunner::Run(ActivationSelector& selector, PassObserver* observer) {
  logits_.clear();
  KvSequence kv(*pool_);
  const std::span<const TokenId> prompt(golden_.prompt);
  const auto chunk = static_cast<size_t>(setup_.chunk);
  for (size_t begin = 0; begin < prompt.size(); begin += chunk) {
    Step(kv, prompt.subspan(begin, std::min(chunk, prompt.size() - begin)), selector, observer);
  }
  for (size_t i = 0; i < golden_.decode.size(); ++i) {
    Step(kv, std::span(golden_.decode).subspan(i, 1), selector, observer);
  }
  return logits_;
}

double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
    norm = std::max(norm, std::abs(static_cast<double>(b[i])));
  }
  return error / norm;
}

}  // namespace hearth
