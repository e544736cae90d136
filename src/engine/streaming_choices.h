// How streaming is chosen by name, on the command line and in programs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/load/neuron_streaming.h"

namespace hearth {

class Engine;

// A setting that is one word.
struct StreamingWord {
  const char* field;   // its name in Error::field(), like "cache_policy"
  std::string values;  // like "whole|gates-first"
  // Sets it. False for a word that is none of the values.
  bool (*take)(StreamingOptions& options, const std::string& word);
};

// pipeline, reads, io, cache_policy and lookahead, in this order.
std::span<const StreamingWord> StreamingWords();

// Sets how far apart reads may lie that are joined; nothing: none are. False for more than
// kMaxGapBytes.
bool TakeMergeGap(StreamingOptions& options, std::optional<uint64_t> bytes);

// A setting that was given and does nothing.
struct IdleSetting {
  std::string field;
  std::string
      other;  // the setting that leaves it nothing to do, like "pipeline blocking", or empty
  std::string why;
};

// Returns the first of the given fields that contradicts `options`. Needs no model.
std::optional<IdleSetting> FindContradiction(const StreamingOptions& options,
                                             std::span<const std::string> given);

// Returns the first of the given fields that does nothing for a model that is loaded. Fields:
// those of StreamingWords, merge_gap, pinned and io_device.
std::optional<IdleSetting> FindIdleSetting(const Engine& engine,
                                           std::span<const std::string> given);

}  // namespace hearth
