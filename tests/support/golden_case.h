// A golden case: a tiny model with the logits that Hugging Face transformers computes for it
// (tests/goldens/README.md).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/budget.h"
#include "engine/load/matrix_streaming.h"
#include "engine/load/model.h"
#include "pass/transformer_pass.h"
#include "sparsity/selector.h"

namespace hearth {

struct GoldenCase {
  std::string name;
  std::string model_path;
  std::vector<TokenId> prompt;
  std::vector<TokenId> decode;     // teacher-forced steps after the prompt
  std::vector<int64_t> positions;  // that have reference logits
  std::vector<float> logits;       // [positions][vocab]
  int64_t vocab = 0;
};

std::vector<std::string> GoldenNames();
GoldenCase LoadGolden(const std::string& name);

struct RunSetup {
  std::string isa = "auto";
  int threads = 2;
  KvCodec kv = KvCodec::kF32;
  int64_t chunk = 64;                           // prompt tokens per pass
  int64_t extents_in_memory = 0;                // of FFNs that are read meanwhile; 0: all
  std::function<void(ModelSpec&)> change_spec;  // mutations
  std::function<void(ModelWeights&)> change_weights;
};

// A golden's model, loaded and ready to run.
class GoldenRunner {
 public:
  GoldenRunner(const GoldenCase& golden, const RunSetup& setup);

  // Logits [positions][vocab] of prompt (in chunks) and decode steps (one token each).
  std::vector<float> Run(ActivationSelector& selector, PassObserver* observer = nullptr);

  const ModelSpec& spec() const { return model_->spec(); }

 private:
  void Step(KvSequence& kv, std::span<const TokenId> tokens, ActivationSelector& selector,
            PassObserver* observer);

  const GoldenCase& golden_;
  RunSetup setup_;
  Budget budget_;
  Compute compute_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<StreamedMatrices> streamed_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<TransformerPass> pass_;
  std::vector<float> logits_;
};

// max|a - b| / max|b|.
double RelativeError(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace hearth
