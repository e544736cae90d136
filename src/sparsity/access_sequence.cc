#include "sparsity/access_sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "cache/neuron_cache.h"
#include "sparsity/route_trace.h"
#include "sparsity/trace.h"
#include "sparsity/trace_layout.h"

namespace hearth {
namespace {

bool IsNeuronTrace(const BlockReader& file) {
  char magic[sizeof(trace::kMagic)] = {};
  if (file.size_bytes() < sizeof(magic)) return false;
  file.ReadAt(0, std::as_writable_bytes(std::span(magic)));
  return std::memcmp(magic, trace::kMagic, sizeof(magic)) == 0;
}

// A batch per FFN, its active neurons; where experts are dense inside, one per layer, its experts.
void AppendToken(const TraceHeader& header, const TraceToken& token, AccessSequence& sequence) {
  for (int64_t layer = 0; layer < header.num_layers; ++layer) {
    for (int64_t i = 0; i < header.lists_per_layer(); ++i) {
      const int64_t list = layer * header.lists_per_layer() + i;
      const int64_t ffn = layer * sequence.num_experts + token.expert(list);
      if (sequence.unit == AccessUnit::kExperts) {
        sequence.Append(static_cast<int32_t>(ffn));
        continue;
      }
      for (const int32_t neuron : token.neurons(list)) {
        sequence.Append(static_cast<int32_t>(ffn * sequence.num_neurons + neuron));
      }
      sequence.EndBatch();
    }
    sequence.EndBatch();
  }
  sequence.EndPass();
}

AccessSequence ReadNeuronTrace(std::unique_ptr<BlockReader> file, const ReadProgressFn& progress) {
  const std::string name = file->name();
  TraceReader reader(std::move(file));
  const TraceHeader& header = reader.header();
  AccessSequence sequence;
  const bool dense = header.activation == FfnActivation::kSilu;
  if (dense && header.num_experts == 0) {
    throw Error(ErrorCode::kUnsupported, name,
                "every token needs every neuron: there is nothing that a cache could choose");
  }
  sequence.unit = dense ? AccessUnit::kExperts : AccessUnit::kNeurons;
  sequence.model_name = header.model_name;
  sequence.num_layers = header.num_layers;
  sequence.num_experts = std::max<int64_t>(header.num_experts, 1);
  sequence.num_neurons = dense ? 1 : header.intermediate_size;
  if (sequence.num_keys() > NeuronCache::kMaxKeys) {
    throw Error(ErrorCode::kUnsupported, name, "neurons of the model",
                fmt::format("at most {}", NeuronCache::kMaxKeys),
                std::to_string(sequence.num_keys()));
  }
  TraceToken token;
  for (uint64_t i = 0; reader.Next(token); ++i) {
    AppendToken(header, token, sequence);
    if (progress) progress(i + 1, reader.num_tokens());
  }
  return sequence;
}

}  // namespace

void AccessSequence::EndBatch() {
  const size_t begin = batch_ends_.empty() ? 0 : batch_ends_.back();
  if (keys_.size() == begin) return;
  batch_ends_.push_back(keys_.size());
  ends_pass_.push_back(0);
}

void AccessSequence::EndPass() {
  if (ends_pass_.empty() || ends_pass_.back() != 0) return;
  ends_pass_.back() = 1;
  ++num_passes_;
}

AccessSequence ReadAccessSequence(std::unique_ptr<BlockReader> file,
                                  const ReadProgressFn& progress) {
  const std::string name = file->name();
  AccessSequence sequence = IsNeuronTrace(*file) ? ReadNeuronTrace(std::move(file), progress)
                                                 : ReadRouteTrace(*file, progress);
  if (sequence.num_accesses() == 0) {
    throw Error(ErrorCode::kUnsupported, name, "the trace is empty: there is nothing to replay");
  }
  return sequence;
}

}  // namespace hearth
