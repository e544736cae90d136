#include "planner/cost/cost_model.h"

#include <algorithm>

#include "planner/cost/ffn_seconds.h"
#include "planner/cost/read_seconds.h"

namespace hearth {
namespace {

// Parallel sections of a layer: queries, keys and values; attention and its merge; its output; the
// predictor's two matrices; FFN; and what the calling thread does between them, in such sections.
constexpr double kSectionsOfLayer = 8;

double BytesOf(const WorkByOp& work, std::initializer_list<PassOp> ops) {
  double bytes = 0;
  for (const PassOp op : ops) bytes += work[static_cast<size_t>(op)].bytes;
  return bytes;
}

// What is read of FFNs in a pass that needs all of them. Of slots that are halves of bundles only
// the pinned ones spare a read (pipeline/range_reader.h).
double BytesOutside(const EnginePlan& plan) {
  if (plan.bundles) {
    const StreamShape& shape = plan.bundles->shape;
    const StreamPlan& neurons = plan.neurons;
    int64_t outside = shape.all_neurons() - neurons.pinned_slots(shape);
    if (!neurons.holds_gates) outside -= neurons.CacheSlotsBeside(shape, kPlannedKvPages);
    return static_cast<double>(outside) * static_cast<double>(shape.bundle_bytes);
  }
  return plan.matrices ? static_cast<double>(plan.matrices->BytesOutside(plan.extents)) : 0;
}

// Of the FFNs of a layer, what one token is routed to.
double ChosenShare(const ModelSpec& spec) {
  const FfnSpec& ffn = MainFfn(spec);
  return ffn.num_experts == 0 ? 1
                              : static_cast<double>(ffn.num_experts_per_token) /
                                    static_cast<double>(ffn.num_experts);
}

// Layer by layer the larger of computing, and of reading the experts that are not there and
// multiplying the last of what comes. `ffn_bytes`: of all experts of a token.
void AddExperts(const CostInputs& in, double ffn_bytes, TokenCost& cost) {
  const ExtentMap& map = in.plan.matrices->map();
  const double rate = in.hardware.ForCores(in.cores).matrix_bytes_per_s.median;
  const double extents = in.replay->listed_per_token();
  const double resident_bytes = extents > 0 ? ffn_bytes / extents : 0;
  ExtentPlan nothing_kept = in.plan.extents;
  nothing_kept.cache_slots = 0;
  nothing_kept.lent = {};
  const double stored_bytes = static_cast<double>(in.plan.matrices->BytesOutside(nothing_kept)) /
                              static_cast<double>(map.num_extents());
  const double unpack = UnpackSeconds(in, stored_bytes);
  const double read_one = SequentialSeconds(in, stored_bytes);
  const double last = Over(resident_bytes, rate) + unpack;
  const double share = in.hardware.BusyIoShare(in.threads());
  double compute = 0, read = 0, both = 0;
  for (const FfnAccess& layer : in.replay->ffns) {
    const double c = Over(layer.listed * resident_bytes, rate) + layer.misses * unpack;
    const double r =
        SecondsBeside(share, layer.misses * read_one, c - (layer.misses > 0 ? last : 0));
    compute += c;
    read += r;
    both += layer.misses > 0 ? std::max(c, r + last) : c;
  }
  const double per_token = 1000 * in.replay->weight / static_cast<double>(in.replay->tokens);
  cost.time.ffn_ms = cost.beside_ms = compute * per_token;
  cost.time.io_ms = read * per_token;
  cost.time.token_ms += both * per_token;
  cost.bytes_read = in.replay->misses_per_token() * stored_bytes;
}

// Every FFN, of which what is outside of memory is read in order while everything else is computed.
// `ffn_bytes`: of matrices.
void AddSequential(const CostInputs& in, double ffn_bytes, TokenCost& cost) {
  const ThreadSpeed speed = in.hardware.ForCores(in.cores);
  cost.bytes_read = BytesOutside(in.plan) * ChosenShare(in.plan.load.spec);
  double ffn = Over(ffn_bytes, speed.matrix_bytes_per_s.median);
  if (in.plan.load.is_packed) {
    const auto num_layers = static_cast<double>(in.plan.load.spec.num_layers);
    ffn = num_layers * SecondsOfFfnInMemory(in, in.activity.gate / num_layers) +
          Over(cost.bytes_read, speed.check_bytes_per_s.median) +
          SequentialReadCpuSeconds(in, cost.bytes_read);
  }
  if (in.plan.matrices) ffn += UnpackSeconds(in, cost.bytes_read);
  cost.time.ffn_ms = 1000 * ffn;
  cost.beside_ms = cost.time.token_ms + cost.time.ffn_ms;
  const double share = in.plan.bundles ? in.hardware.ForThreads(in.threads()).range_share.median
                                       : in.hardware.BusyIoShare(in.threads());
  cost.time.io_ms =
      1000 * SecondsBeside(share, SequentialSeconds(in, cost.bytes_read), cost.beside_ms / 1000);
  cost.time.token_ms = std::max(cost.beside_ms, cost.time.io_ms);
}

// `between`: seconds from one FFN to the next.
void AddFfns(const CostInputs& in, double between, TokenCost& cost) {
  const auto num_layers = static_cast<double>(in.plan.load.spec.num_layers);
  if (in.replay == nullptr) {
    cost.time.ffn_ms = cost.beside_ms =
        1000 * num_layers * SecondsOfFfnInMemory(in, in.activity.gate / num_layers);
    cost.time.token_ms += cost.time.ffn_ms;
    return;
  }
  const double per_token = 1000 * in.replay->weight / static_cast<double>(in.replay->tokens);
  const double guess = cost.time.predictor_ms / 1000 / num_layers;
  const FfnSeconds ffns = SecondsOfFfns(in, between, guess);
  cost.time.ffn_ms = cost.beside_ms = ffns.compute * per_token;
  cost.time.io_ms = ffns.read * per_token;
  cost.time.token_ms += ffns.both * per_token;
  cost.bytes_read = ffns.bytes_read * per_token / 1000;
}

// A row of the embedding that is not in memory, which nothing goes on beside.
double EmbeddingSeconds(const CostInputs& in) {
  if (!in.plan.embedding) return 0;
  const auto bytes = in.plan.embedding->rows.row_bytes();
  return Over(static_cast<double>(bytes), in.hardware.IoBytesPerSecond(bytes, 1));
}

}  // namespace

const char* IoStrategyName(IoStrategy strategy) {
  switch (strategy) {
    case IoStrategy::kNone:
      return "none";
    case IoStrategy::kWhole:
      return "whole";
    case IoStrategy::kHalves:
      return "halves";
    case IoStrategy::kPieces:
      return "pieces";
    case IoStrategy::kHalvesInPieces:
      return "halves-in-pieces";
    case IoStrategy::kSequential:
      return "sequential";
    case IoStrategy::kExperts:
      return "experts";
  }
  return "";
}

const char* TokenCost::bound() const {
  if (time.io_ms > beside_ms) return "flash";
  return device_wait_ms > time.device_ms / 2 ? "device" : "memory";
}

TokenCost CostOfToken(const CostInputs& in) {
  const ThreadSpeed speed = in.hardware.ForCores(in.cores);
  const WorkByOp work = EstimatePass(in.plan.load.spec, *in.plan.load.weights,
                                     {.tokens = 1,
                                      .context = in.context,
                                      .logit_rows = 1,
                                      .kv_codec = in.plan.limits.kv_codec,
                                      .ffn = in.activity});
  const double matrices = BytesOf(
      work, {PassOp::kAttentionQkv, PassOp::kAttentionOutput, PassOp::kRouter, PassOp::kLogits});
  const double cached = BytesOf(work, {PassOp::kAttention});
  const double sections = kSectionsOfLayer * static_cast<double>(in.plan.load.spec.num_layers);
  TokenCost cost;
  cost.time.attention_ms = 1000 * (Over(matrices, speed.matrix_bytes_per_s.median) +
                                   Over(cached, speed.dot_bytes_per_s.median) +
                                   sections * speed.section_seconds.median + EmbeddingSeconds(in));
  cost.time.predictor_ms =
      1000 * Over(BytesOf(work, {PassOp::kFfnPredictor}), speed.matrix_bytes_per_s.median);
  cost.time.token_ms = cost.time.attention_ms + cost.time.predictor_ms;
  const bool is_of_neurons = in.plan.load.is_packed;
  if (is_of_neurons && in.strategy != IoStrategy::kSequential) {
    const double of_layers = cost.time.token_ms / 1000 - Over(BytesOf(work, {PassOp::kLogits}),
                                                              speed.matrix_bytes_per_s.median);
    AddFfns(in, of_layers / static_cast<double>(in.plan.load.spec.num_layers), cost);
    return cost;
  }
  const double ffn = BytesOf(work, {PassOp::kFfnGateUp, PassOp::kFfnDown});
  if (in.strategy == IoStrategy::kExperts) {
    AddExperts(in, ffn, cost);
  } else if (in.strategy == IoStrategy::kSequential) {
    AddSequential(in, ffn, cost);
  } else {
    cost.time.ffn_ms = 1000 * Over(ffn, speed.matrix_bytes_per_s.median);
    cost.beside_ms = cost.time.token_ms += cost.time.ffn_ms;
  }
  return cost;
}

FfnActivity AllNeurons(const LoadPlan& load) {
  const FfnSpec& ffn = MainFfn(load.spec);
  const int64_t chosen = std::max<int64_t>(1, ffn.num_experts_per_token);
  int64_t rows = 0;  // which layers differ in where a device has some
  for (const LayerWeights& layer : load.weights->layers) rows += layer.gate_rows.rows;
  FfnActivity all;
  all.gate = all.up = all.down = static_cast<double>(rows * chosen);
  return all;
}

double PromptTokensPerSecond(const CostInputs& in, int64_t tokens) {
  const ThreadSpeed speed = in.hardware.ForCores(in.cores);
  const WorkByOp work =
      EstimatePrompt(in.plan.load.spec, *in.plan.load.weights, tokens, in.plan.limits.max_tokens,
                     in.plan.limits.kv_codec, AllNeurons(in.plan.load));
  const OpWork total = Total(work);
  const auto passes =
      static_cast<double>((tokens + in.plan.limits.max_tokens - 1) / in.plan.limits.max_tokens);
  const double sections =
      passes * kSectionsOfLayer * static_cast<double>(in.plan.load.spec.num_layers);
  const double compute = Over(total.int8_macs, speed.prompt_macs_per_s.median) +
                         Over(total.float_macs, in.hardware.FloatMacsPerSecond(in.cores)) +
                         sections * speed.section_seconds.median;
  const double from_memory = Over(total.bytes, speed.read_bytes_per_s.median);
  const double from_storage = SequentialSeconds(in, passes * BytesOutside(in.plan));
  return Over(static_cast<double>(tokens), std::max({compute, from_memory, from_storage}));
}

}  // namespace hearth
