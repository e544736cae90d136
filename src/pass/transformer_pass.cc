#include "pass/transformer_pass.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/worker_team.h"
#include "ops/elementwise.h"
#include "pass/block_norms.h"
#include "pass/neuron_ffn.h"
#include "pass/products.h"

namespace hearth {

TransformerPass::TransformerPass(const ModelSpec& spec, const ModelWeights& weights,
                                 Compute& compute, Budget& budget, const PassLimits& limits,
                                 const StreamedWeights& streamed)
    : limits_(limits),
      widths_(spec, limits, compute.threads()),
      input_(budget, limits.max_tokens, widths_.widest_input(), limits.activations),
      adapters_(compute),
      spilled_(spec),
      device_kv_(streamed.device_weights),
      context_{spec,
               weights,
               compute,
               seam_,
               input_,
               adapters_,
               spilled_,
               streamed.embedding,
               streamed.device_weights,
               device_kv_,
               is_uploading_},
      scratch_(budget, "activations",
               [this](ScratchLayout& layout) {
                 activations_.Lay(widths_, layout);
                 adapters_.Lay(limits_, layout);
               }),
      logits_memory_(budget, "logits",
                     [this, &spec](ScratchLayout& layout) {
                       logits_ = layout.Take(kMaxLogitRows, spec.vocab_size);
                     }),
      attention_(context_, limits.max_context),
      executor_(MakeFfnExecutor(context_, widths_, budget, activations_, streamed)),
      ffn_(context_, widths_, budget, *executor_),
      whole_(context_, attention_) {
  seam_.Tell([this](PassOp op) {
    executor_->AfterOp(op);
    spilled_.Poll();
  });
}

int64_t TransformerPass::TokensOfQuery(const PassLimits& limits) {
  return limits.ffn_of_neurons ? std::min(limits.max_tokens, NeuronLists::kTokensOfQuery)
                               : limits.max_tokens;
}

uint64_t TransformerPass::ChargedBytes(const ModelSpec& spec, const PassLimits& limits,
                                       int threads) {
  const PassWidths widths(spec, limits, threads);
  Activations activations;
  return ScratchArena::ChargedBytes([&](ScratchLayout& layout) {
           activations.Lay(widths, layout);
           AdapterTerms::Take(limits, layout);
         }) +
         ScratchArena::ChargedBytes(
             [&](ScratchLayout& layout) { layout.Take(kMaxLogitRows, spec.vocab_size); }) +
         MatMulInput::ChargedBytes(limits.max_tokens, widths.widest_input(), limits.activations) +
         FfnExecutorBytes(widths) + DeviceFfnSum::ChargedBytes(widths);
}

void TransformerPass::Run(const PassShape& shape, ActivationSelector& selector,
                          PassObserver* observer) {
  // Elsewhere nobody sleeps for long, and a caller that may move gets away from other programs.
  std::optional<WorkerTeam::CallerPin> pin;
  if (executor_->waits()) pin.emplace(context_.compute.team());
  CheckShape(shape, limits_, context_.spec.vocab_size);
  rows_.Place(shape);
  adapters_.Begin(shape);
  seam_.Show(observer);
  try {
    const Activations a = activations_.FirstRows(rows_.count());
    // Terms of adapters are added on the processor, before keys and queries are rotated.
    device_kv_.Begin(rows_, !adapters_.any());
    spilled_.Begin(rows_, device_kv_.layers());
    if (spilled_.has_any() && !pin) pin.emplace(context_.compute.team());
    const FfnPass pass = {shape.kind, rows_.count(), a.hidden, &selector, observer};
    if (context_.device != nullptr) {
      // A prompt's tokens have the same bits whoever else is in the pass, and so have others'.
      context_.device->matrices->SetWay(shape.kind == PassKind::kPrefill
                                            ? accel::MatmulWay::kInTiles
                                            : accel::MatmulWay::kByToken);
    }
    BeginUploads(pass);
    executor_->Begin(pass);
    ffn_.Begin(pass);
    whole_.Begin(pass);
    RunLayers(a);
    executor_->End();
    device_kv_.End();
    EndUploads();
  } catch (...) {
    whole_.Abandon();
    EndUploads();
    // Only reading can fail from here on, or nobody wants the result.
    RemoveRows(shape);
    throw;
  }
}

void TransformerPass::BeginUploads(const FfnPass& pass) {
  is_uploading_ = context_.device != nullptr && context_.device->uploads != nullptr &&
                  pass.kind == PassKind::kPrefill && context_.device->uploads->IsFor(pass.rows);
  if (is_uploading_) context_.device->uploads->Begin();
}

void TransformerPass::EndUploads() noexcept {
  if (is_uploading_) context_.device->uploads->End();
  is_uploading_ = false;
}

void TransformerPass::LookUpTokens(const Activations& a) {
  if (context_.embedding != nullptr) {
    context_.embedding->LookUp(context_.compute, rows_.tokens, a.hidden);
  } else {
    LookUpRows(context_.compute, context_.weights.token_embedding, rows_.tokens, a.hidden);
  }
}

// hidden = embedding(tokens); for every layer hidden += attention(hidden), hidden += ffn(hidden);
// normed = norm(hidden), of which the logits are a product.
void TransformerPass::RunLayers(const Activations& a) {
  const ModelSpec& spec = context_.spec;
  Compute& compute = context_.compute;
  seam_.Start();
  attention_.Turn(rows_, a);
  LookUpTokens(a);
  if (spec.embedding_scale != 1) {
    Scale(compute, a.hidden, static_cast<float>(spec.embedding_scale));
  }
  if (spec.positions == PositionKind::kLearned) AddPositions(a);
  seam_.After(PassOp::kEmbedding);
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    seam_.BeforeLayer();
    if (whole_.Has(layer)) {
      whole_.Run(layer, rows_, a);
      ffn_.PassBy(layer);
      continue;
    }
    whole_.Leave(rows_, a);
    ffn_.RouteBeforeAttention(layer, a);
    attention_.Run(layer, rows_, a);
    if (context_.layer(layer).parallel_attention) {
      Copy(compute, a.block_out, a.attention_out);
    } else {
      Add(compute, a.hidden, a.block_out);
    }
    seam_.After(PassOp::kResidual);
    ffn_.Run(layer, a);
    Add(compute, a.hidden, a.block_out);
    if (context_.layer(layer).parallel_attention) Add(compute, a.hidden, a.attention_out);
    seam_.After(PassOp::kResidual);
  }
  whole_.Leave(rows_, a);
  Norm(context_, spec.layers.back(),
       {context_.weights.output_norm, context_.weights.output_norm_bias}, a.hidden, a.normed);
  seam_.After(PassOp::kNorm);
}

void TransformerPass::AddPositions(const Activations& a) {
  const ModelSpec& spec = context_.spec;
  const float* const table = FloatsOf(context_.weights.position_embedding);
  for (int64_t r = 0; r < rows_.count(); ++r) {
    const int64_t row = rows_.positions[static_cast<size_t>(r)] + spec.position_offset;
    AddToRows(context_.compute, a.hidden.Rows(r, 1), table + row * spec.hidden_size);
  }
}

FloatView TransformerPass::Logits(int64_t first, int64_t count) {
  if (first < 0 || count < 1 || count > kMaxLogitRows || first + count > rows_.count()) {
    throw Error(ErrorCode::kInternal, "Logits", "rows outside the last pass");
  }
  seam_.Start();
  const FloatView out = logits_.Rows(0, count);
  input_.Set(activations_.normed.Rows(first, count));
  const Product head{context_.weights.output, out, FloatsOf(context_.weights.output_bias)};
  Multiply(context_, context_.spec.num_layers, {&head, 1},
           std::array{context_.device == nullptr
                          ? accel::DeviceMatrixAt()
                          : context_.device->matrices->At(context_.device->output)});
  const ModelSpec& spec = context_.spec;
  if (spec.logit_scale != 1) Scale(context_.compute, out, static_cast<float>(spec.logit_scale));
  if (spec.logit_softcap > 0) {
    Softcap(context_.compute, out, static_cast<float>(spec.logit_softcap));
  }
  seam_.After(PassOp::kLogits);
  return out;
}

}  // namespace hearth
