// What a pass is to compute, said by its caller.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/kv_cache.h"
#include "model/adapter.h"
#include "model/model_spec.h"
#include "tensor/kv_layout.h"
#include "text/tokenizer/tokenizer.h"

namespace hearth {

enum class PassKind : uint8_t {
  // Tokens of prompts, and of others beside them: where there are many, single neurons are computed
  // for all of them together.
  kPrefill,
  // A new token of each sequence: where neurons are streamed, those of its tokens are read and no
  // others, however many sequences there are.
  kDecode,
  // A few tokens of each sequence, whose logits are all wanted: the bits of decoding them one after
  // the other.
  kVerify,
};

// New tokens of one sequence. They follow what its cache holds and are added to it.
struct BatchSequence {
  KvSequence* kv = nullptr;
  std::span<const TokenId> tokens;
  // What the cache was filled with and goes on with; must outlive the pass. Null:
  // TransformerPass::SetDefaultAdapters.
  const AdapterMix* adapters = nullptr;
};

// Rows of a pass are numbered over the sequences in order.
struct PassShape {
  // A prompt of at least this many tokens computes single neurons for all of them together.
  static constexpr int64_t kPrefillTokens = 8;

  // How many tokens of a prompt to run next where `left` are left and a pass takes `most`: as many
  // as it takes. Where that would leave fewer than kPrefillTokens for the last pass, some are kept
  // for it, so that all tokens of a prompt are computed in one way however it is cut.
  static int64_t ChunkOf(int64_t left, int64_t most);

  PassKind kind = PassKind::kPrefill;
  std::span<const BatchSequence> sequences;
};

// What passes are made for.
struct PassLimits {
  int64_t max_tokens = 256;    // of one pass, all sequences together
  int64_t max_context = 4096;  // longest sequence
  KvCodec kv_codec = KvCodec::kF16;
  TileActivations activations = TileActivations::kInt8;  // that quantized matrices multiply
  bool ffn_of_neurons = false;  // the model's FFNs are single neurons (a packed file's)
  // Of those, tokens of different sequences that share a neuron's weights while it is at hand, and
  // whose lists are guessed together: at least 1, at most max_tokens and SparseBatch::kMostTokens.
  int64_t tokens_together = 1;
  // Of those, by layer, how many of its FFN, the first ones, are on a device; empty: there is none.
  std::vector<int64_t> device_neurons;
  // Whether FFNs of a model that is not packed are on a device.
  bool sums_on_device = false;
  // Whether layers of such a model are there as a whole.
  bool layers_on_device = false;
  // The largest WidestRanks of adapters that sequences may have; 0: they have none.
  int64_t adapter_ranks = 0;
};

// How the KV caches that passes fill are laid out.
KvLayout KvLayoutFor(const ModelSpec& spec, KvCodec kv_codec);

// Throws Error(kInvalidArgument) for an empty or too large pass, a token outside the vocabulary, a
// sequence that is there twice, an adapter of a larger rank than `limits` has room for, several
// tokens of one where the pass decodes; Error(kContextFull) past max_context.
void CheckShape(const PassShape& shape, const PassLimits& limits, int64_t vocab_size);

}  // namespace hearth
