// Speeds of a model, next to what the machine could do at best in the same minutes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "measure/probe_memory.h"
#include "measure/quality.h"
#include "measure/statistics.h"
#include "measure/work_estimate.h"
#include "pass/pass_seam.h"

namespace hearth {

struct BenchOptions {
  std::vector<int64_t> prefill_tokens = {128, 512};
  int64_t decode_tokens = 64;
  int64_t decode_context = 32;  // tokens in the cache before the first that is decoded
  // Of these tokens only the first ones are computed; their keys and values are repeated: for the
  // speed of contexts that take long to compute, where what the model says does not matter.
  bool repeats_context = false;
  std::vector<int64_t> parallel;  // numbers of sequences to decode together, each a text of its own
  int64_t repetitions = 5;
  bool profile = false;  // also take the time of every op
};

// Tokens to compute speeds with: the model's topic walk where it has one, because what its neurons
// do depends on the text; else random ids from a fixed seed. Texts of different numbers differ.
std::vector<TokenId> BenchTokens(const GgufMetadata& metadata, int64_t vocab_size, int64_t count,
                                 uint64_t number = 0);
std::vector<TokenId> BenchTokens(const Model& model, int64_t count, uint64_t number = 0);

// The context that the measurements need.
int64_t BenchContext(const BenchOptions& options);

struct PrefillResult {
  int64_t tokens = 0;
  Spread tok_s;
  WorkByOp work;           // of the whole prompt
  OpSeconds op_seconds{};  // of one prompt, mean; with BenchOptions::profile
};

struct DecodeResult {
  int64_t tokens = 0;
  int64_t context = 0;  // before the first
  Spread tok_s;
  WorkByOp work;                     // of one token, at the mean context
  OpSeconds op_seconds{};            // of one token, mean; with BenchOptions::profile
  std::vector<double> latencies_ms;  // of every token of every repetition
  StreamCounts stream;               // over all tokens and repetitions
  std::vector<double> miss_rates;    // of every token, where neurons are streamed
};

// Sequences that go on together, a token of each in a pass.
struct ParallelResult {
  int64_t sequences = 0;
  int64_t tokens = 0;      // decoded of each
  int64_t context = 0;     // of each, before the first
  Spread tok_s;            // of all together
  OpSeconds op_seconds{};  // of one pass, mean; with BenchOptions::profile
  StreamCounts stream;     // over all passes and repetitions
  int64_t decoded = 0;     // tokens over all sequences and repetitions
};

struct BenchResult {
  std::vector<PrefillResult> prefill;
  DecodeResult decode;
  std::vector<ParallelResult> parallel;
  // Over the first tokens of the same text, computed once more; nothing where all is computed.
  std::optional<Quality> quality;
  int64_t quality_tokens = 0;  // that it is of
  // Medians of probes made between the measurements. Nothing where it could not be measured.
  std::optional<double> read_bytes_per_s;
  double int8_macs_per_s = 0;
  std::optional<double> storage_bytes_per_s;  // nothing where nothing is streamed
};

// Called with tokens computed so far and in all, and what is being measured.
using BenchProgressFn =
    std::function<void(uint64_t done, uint64_t total, const std::string& measure)>;

// Computes prompts, each in an empty context, and single tokens after one, in turn so that what
// else the machine does meanwhile touches all alike. The tokens are the model's topic walk where it
// has one (measure/topic_walk.h), else random ids from a fixed seed: nothing depends on what the
// model says. Throws Error(kInvalidArgument) where the engine's context is too small.
BenchResult RunBench(Engine& engine, const ProbeMemory& memory, const BenchOptions& options,
                     const BenchProgressFn& progress = {});

}  // namespace hearth
