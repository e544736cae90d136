#include "pass/pass_shape.h"

#include <string>

#include "base/error.h"

namespace hearth {
namespace {

std::span<const AdapterUse> UsesOf(const BatchSequence& sequence) {
  if (sequence.adapters == nullptr) return {};
  return sequence.adapters->uses();
}

void CheckSequence(const BatchSequence& sequence, const PassShape& shape, const PassLimits& limits,
                   int64_t vocab_size) {
  const auto count = static_cast<int64_t>(sequence.tokens.size());
  if (count == 0) throw Error(ErrorCode::kInvalidArgument, "batch", "a sequence without tokens");
  if (shape.kind == PassKind::kDecode && count > 1) {
    throw Error(ErrorCode::kInvalidArgument, "batch", "several tokens of a sequence are decoded");
  }
  if (sequence.kv->length() + count > limits.max_context) {
    throw Error(ErrorCode::kContextFull, "context", "tokens",
                "at most " + std::to_string(limits.max_context),
                std::to_string(sequence.kv->length() + count));
  }
  for (const AdapterUse& use : UsesOf(sequence)) {
    if (WidestRanks(*use.adapter) > limits.adapter_ranks) {
      throw Error(ErrorCode::kInvalidArgument, "batch", "an adapter of a larger rank than planned");
    }
  }
  for (const BatchSequence& other : shape.sequences) {
    if (&other != &sequence && other.kv == sequence.kv) {
      throw Error(ErrorCode::kInvalidArgument, "batch", "a sequence appears twice");
    }
  }
  for (const TokenId token : sequence.tokens) {
    if (token < 0 || token >= vocab_size) {
      throw Error(ErrorCode::kInvalidArgument, "batch", "token id",
                  "below " + std::to_string(vocab_size), std::to_string(token));
    }
  }
}

}  // namespace

KvLayout KvLayoutFor(const ModelSpec& spec, KvCodec kv_codec) {
  KvLayout layout = {.codec = kv_codec, .num_layers = spec.num_layers};
  // ValidateSpec holds them equal in all layers.
  for (const LayerSpec& layer : spec.layers) {
    layout.num_kv_heads = layer.attention.num_kv_heads;
    layout.head_dim = layer.attention.head_dim;
  }
  return layout;
}

int64_t PassShape::ChunkOf(int64_t left, int64_t most) {
  if (left <= most) return left;
  const int64_t rest = left - most;
  if (rest >= kPrefillTokens || most < 2 * kPrefillTokens) return most;
  return left - kPrefillTokens;
}

void CheckShape(const PassShape& shape, const PassLimits& limits, int64_t vocab_size) {
  int64_t rows = 0;
  for (const BatchSequence& sequence : shape.sequences) {
    CheckSequence(sequence, shape, limits, vocab_size);
    rows += static_cast<int64_t>(sequence.tokens.size());
  }
  if (rows == 0 || rows > limits.max_tokens) {
    throw Error(ErrorCode::kInvalidArgument, "batch", "tokens",
                "1 to " + std::to_string(limits.max_tokens), std::to_string(rows));
  }
}

}  // namespace hearth
