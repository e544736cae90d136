// A conversation with a model: its cached tokens, and generation from them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/session/generation.h"

namespace hearth {

// Called with text as it becomes complete (whole UTF-8 characters). Return false to stop.
using TextFn = std::function<bool(std::string_view text)>;

// Tokens and wall time of one phase.
struct PhaseTime {
  int64_t tokens = 0;
  double ms = 0;
  double TokensPerSecond() const;
};

struct GenerateResult {
  std::string text;
  std::vector<TokenId> token_ids;  // those of a stop text too, but no end token
  FinishReason finish_reason = FinishReason::kLength;
  PhaseTime prefill;
  PhaseTime decode;     // the first token comes out of prefill and is not counted here
  StreamCounts stream;  // of decoding, where neurons are streamed
};

class Session {
 public:
  // The engine must outlive the session.
  explicit Session(Engine& engine);

  // Everything in the context so far; all but perhaps the last token are in the cache.
  const std::vector<TokenId>& history() const { return history_; }

  // Runs `prompt` after what is in the context, in chunks, then generates until an end token, a
  // stop string, max_tokens, the end of the context or a cancel. Throws Error(kContextFull),
  // before anything is computed, when the prompt does not fit. Tokens generated stay in the
  // context, so that a next call continues, with an empty prompt too; an empty prompt in an empty
  // context is an Error(kInvalidArgument).
  GenerateResult Generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                          const TextFn& on_text = {});

  // Sets the adapters for all later computation; at first they are the engine's default. If they
  // differ from those before, the next prompt computes the whole context again.
  void SetAdapters(AdapterMix adapters);

  // Drops tokens from the end of the context.
  void Truncate(int64_t new_length);

 private:
  bool Prefill(std::span<const TokenId> prompt, const GenerateOptions& options, PhaseTime& time);
  bool ComputePending(const GenerateOptions& options, ActivationSelector& selector);
  std::span<const float> NextLogits();

  Engine& engine_;
  KvSequence kv_;
  AdapterMix adapters_;
  std::vector<TokenId> history_;
  int64_t last_rows_ = 0;  // rows of the engine's last pass for this session
};

}  // namespace hearth
