// `hearth profile`: runs a model over a text and records what its neurons do.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/model_spec.h"
#include "sparsity/profile.h"
#include "sparsity/trace.h"
#include "tensor/kv_layout.h"

namespace hearth {

// What a run is made of beside the model and its text.
struct ProfileSettings {
  TokenId bos = -1;     // negative where the model has none
  int64_t context = 0;  // tokens of a window
  KvCodec kv_codec = KvCodec::kF16;
};

// The profile of a run that has not begun: what is to be run, and no statistics yet. Throws
// Error(kInvalidArgument) for a text without tokens or a context without room for one beside BOS,
// Error(kUnsupported) for a model whose layers have FFNs of different sizes.
ModelProfile PlanProfile(const ModelSpec& spec, uint64_t model_hash, std::span<const TokenId> text,
                         const ProfileSettings& settings);

// Whether `saved` is of the run that `planned` describes, so that it can be continued: nothing, or
// what is different ("another text").
std::string DifferenceOfRuns(const ModelProfile& saved, const ModelProfile& planned);

// The header of a trace of the same model.
TraceHeader TraceHeaderOf(const ModelProfile& profile, int64_t num_experts_per_token);

// Called now and then on the calling thread.
using ProfileProgressFn = std::function<void(uint64_t done_tokens, uint64_t total_tokens)>;
using ProfileSaveFn = std::function<void(const ModelProfile& profile)>;

struct ProfileRunOptions {
  const std::atomic<bool>* cancel = nullptr;  // looked at between batches; true stops
  ProfileProgressFn progress;
  ProfileSaveFn save;  // every save_seconds, when stopped and at the end
  double save_seconds = 60;
  // Where the run begins at its first token: gets what every token's neurons do, until it has
  // trace_tokens of them.
  TraceWriter* trace = nullptr;
  uint64_t trace_tokens = UINT64_MAX;
};

// What a run takes beside the engine, for EngineOptions::reserved_bytes: else a model that is
// streamed leaves no room for it. trace: null where there is none.
uint64_t ProfileRunBytes(const GgufFile& file, const ModelProfile& profile,
                         const TraceWriter* trace);

// Runs the text from where `profile` stands to its end, or until it is cancelled; then
// profile.complete() is false. The engine's context and KV type are those of the plan. For one
// instruction set the result is the same, bit for bit, for every thread count and batch size, and
// however often the run was stopped, saved and continued; of a packed model for every thread count
// (the last few tokens of a window are computed one by one, which may round a gate to the other
// side).
// Charges the budget for what it holds; throws Error(kOutOfBudget) where that has no room,
// Error(kUnsupported) where the model is streamed, Error(kCorrupt) where activations or weights of
// down are no numbers, and what TransformerPass::Run, `save` and `trace` throw.
void RunProfile(Engine& engine, std::span<const TokenId> text, ModelProfile& profile,
                const ProfileRunOptions& options);

}  // namespace hearth
