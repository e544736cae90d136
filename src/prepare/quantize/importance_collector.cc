#include "prepare/quantize/importance_collector.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/session/text_windows.h"
#include "model/weights.h"
#include "pass/pass_observer.h"

namespace hearth {
namespace {

// What matrices of a layer multiply.
enum class Input : uint8_t { kQkv, kAttentionOutput, kFfn, kDown, kSharedFfn, kSharedDown };
constexpr size_t kNumInputs = 6;

struct InputShape {
  uint64_t columns = 0;  // 0: the layer has no such matrices
  uint64_t experts = 1;
};

InputShape ShapeOf(const ModelSpec& spec, const LayerSpec& layer, Input input) {
  const auto wide = [](int64_t columns) { return static_cast<uint64_t>(columns); };
  const AttentionSpec& attention = layer.attention;
  const uint64_t experts = wide(std::max<int64_t>(1, layer.ffn.num_experts));
  switch (input) {
    case Input::kQkv:
      return {wide(spec.hidden_size)};
    case Input::kAttentionOutput:
      return {wide(attention.num_heads * attention.head_dim)};
    case Input::kFfn:
      return {wide(spec.hidden_size), experts};
    case Input::kDown:
      return {wide(layer.ffn.intermediate_size), experts};
    case Input::kSharedFfn:
      return {layer.ffn.shared_intermediate_size > 0 ? wide(spec.hidden_size) : 0};
    case Input::kSharedDown:
      return {wide(layer.ffn.shared_intermediate_size)};
  }
  return {};
}

// The tensors that multiply it, by their names in the file.
std::vector<const WeightView*> MatricesOf(const LayerWeights& w, Input input) {
  switch (input) {
    case Input::kQkv:
      return {&w.attn_q, &w.attn_k, &w.attn_v};
    case Input::kAttentionOutput:
      return {&w.attn_output};
    case Input::kFfn:
      return {&w.ffn_gate, &w.ffn_up};
    case Input::kDown:
      return {&w.ffn_down};
    case Input::kSharedFfn:
      return {&w.shared_gate, &w.shared_up};
    case Input::kSharedDown:
      return {&w.shared_down};
  }
  return {};
}

class InputCollector : public PassObserver {
 public:
  explicit InputCollector(Engine& engine) : engine_(engine) {
    const ModelSpec& spec = engine.model().spec();
    ModelWeights weights;
    const std::vector<WeightDecl> decls = DeclareWeights(spec, weights);
    for (size_t l = 0; l < spec.layers.size(); ++l) {
      for (size_t i = 0; i < kNumInputs; ++i) {
        const auto input = static_cast<Input>(i);
        sums_.push_back(Empty(ShapeOf(spec, spec.layers[l], input)));
        for (const WeightView* matrix : MatricesOf(weights.layers[l], input)) {
          AddName(decls, matrix, &sums_.back());
        }
      }
    }
    sums_.push_back(Empty({static_cast<uint64_t>(spec.hidden_size)}));
    AddName(decls, spec.tied_embeddings ? &weights.token_embedding : &weights.output,
            &sums_.back());
  }

  void OnMatrixInput(int64_t layer, MatrixInput which, FloatView input) override {
    constexpr std::array kInputs = {Input::kQkv, Input::kAttentionOutput, Input::kSharedFfn,
                                    Input::kSharedDown};
    Add(Of(layer, kInputs[static_cast<size_t>(which)]), 0, input);
  }
  void OnFfnInput(int64_t layer, int64_t expert, std::span<const int64_t>, FloatView,
                  FloatView input) override {
    Add(Of(layer, Input::kFfn), expert, input);
  }
  void OnFfnActivation(int64_t layer, int64_t expert, std::span<const int64_t>,
                       FloatView activation) override {
    Add(Of(layer, Input::kDown), expert, activation);
  }
  // What the output matrix multiplies.
  void AddFinal(FloatView states) { Add(sums_.back(), 0, states); }

  std::vector<InputSums> Take() {
    std::erase_if(sums_, [](const InputSums& sums) { return sums.names.empty(); });
    return std::move(sums_);
  }

 private:
  static InputSums Empty(const InputShape& shape) {
    InputSums sums;
    sums.columns = shape.columns;
    sums.squares.assign(shape.columns * shape.experts, 0);
    sums.tokens.assign(shape.experts, 0);
    return sums;
  }
  // Families that keep several matrices in one tensor have one name for all of them.
  static void AddName(const std::vector<WeightDecl>& decls, const WeightView* slot,
                      InputSums* sums) {
    for (const WeightDecl& decl : decls) {
      if (decl.slot != slot || decl.is_vector) continue;
      if (!sums->names.empty() && sums->names.back() == decl.name) continue;
      sums->names.push_back(decl.name);
    }
  }

  InputSums& Of(int64_t layer, Input input) {
    return sums_[static_cast<size_t>(layer) * kNumInputs + static_cast<size_t>(input)];
  }

  void Add(InputSums& sums, int64_t expert, FloatView input) {
    double* const squares = sums.squares.data() + static_cast<size_t>(expert) * sums.columns;
    sums.tokens[static_cast<size_t>(expert)] += static_cast<uint64_t>(input.rows);
    constexpr int64_t kGrain = 64;
    engine_.compute().team().ParallelFor(
        static_cast<int64_t>(sums.columns), kGrain, [&](int64_t begin, int64_t end, int) {
          for (int64_t r = 0; r < input.rows; ++r) {
            const float* const row = input.row(r);
            for (int64_t c = begin; c < end; ++c) {
              squares[c] += static_cast<double>(row[c]) * static_cast<double>(row[c]);
            }
          }
        });
  }

  Engine& engine_;
  std::vector<InputSums> sums_;  // kNumInputs of each layer, then the output matrix's
};

void CheckSums(const Engine& engine, const std::vector<InputSums>& sums) {
  for (const InputSums& matrix : sums) {
    for (const double square : matrix.squares) {
      if (square <= std::numeric_limits<float>::max()) continue;  // false for NaN
      throw Error(ErrorCode::kCorrupt, engine.model().path(),
                  "what " + matrix.names.front() + " multiplies are no numbers");
    }
  }
}

}  // namespace

uint64_t ImportanceBytes(const ModelSpec& spec) {
  uint64_t values = static_cast<uint64_t>(spec.hidden_size);
  for (const LayerSpec& layer : spec.layers) {
    for (size_t i = 0; i < kNumInputs; ++i) {
      const InputShape shape = ShapeOf(spec, layer, static_cast<Input>(i));
      values += (shape.columns + 1) * shape.experts;
    }
  }
  return values * sizeof(double);
}

CollectedImportance CollectImportance(Engine& engine, std::span<const TokenId> text,
                                      const CollectOptions& options) {
  if (engine.model().weights().ffns_have_rows()) {
    throw Error(ErrorCode::kUnsupported, engine.model().path(),
                "a packed model's inputs are not all computed: make the importance matrix with the "
                "model that it came from");
  }
  const BudgetCharge charge =
      engine.budget().Charge("importance matrix", ImportanceBytes(engine.model().spec()));
  const TextWindows windows(text, engine.model().tokenizer().special().bos, engine.context());
  InputCollector collector(engine);
  DenseSelector selector;
  CollectedImportance collected;
  collected.windows = windows.size();
  for (uint64_t i = 0; i < windows.size(); ++i) {
    KvSequence kv(engine.kv_pool());
    const auto after = [&](size_t, size_t count) {
      collector.AddFinal(engine.pass().FinalStates());
      collected.tokens += count;
      if (options.progress) options.progress(collected.tokens, windows.total_tokens());
      return options.cancel == nullptr || !options.cancel->load();
    };
    if (!RunInChunks(engine.pass(), kv, windows.Window(i), selector, &collector, after)) {
      throw Error(ErrorCode::kCancelled, engine.model().path(),
                  "interrupted: an importance matrix of part of the text is not written");
    }
  }
  collected.sums = collector.Take();
  CheckSums(engine, collected.sums);
  return collected;
}

}  // namespace hearth
