// Options of models that do not fit into the memory they are given, and what streaming did.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace hearth::cli {

struct StreamingArguments {
  StreamingOptions options;
  std::vector<std::string> given;  // those that were, in order: fields of StreamingWords and others
};

// Those that were given, as they are written.
std::vector<std::string> GivenFlags(const StreamingArguments& arguments);

// --pipeline, --reads, --io, --cache-policy, --pinned and their like.
void AddStreamingOptions(CLI::App& command, StreamingArguments& arguments);

// --io-device; after AddModeOption.
void AddIoDeviceOption(CLI::App& command, StreamingArguments& arguments);

// Throws UsageError where the options contradict each other. Before anything is loaded.
void CheckStreaming(const StreamingArguments& arguments);
// Throws UsageError where one of the options was given for a model that it does nothing for.
void CheckStreamingUsed(const StreamingArguments& arguments, const Engine& engine);

// The `io` of bench and run (docs/formats/json.md) over `tokens` decoded tokens; null where nothing
// is streamed. miss_rate_p99: where tokens were looked at one by one.
nlohmann::ordered_json IoJson(const Engine& engine, const StreamCounts& counts, int64_t tokens,
                              std::optional<double> miss_rate_p99);

// How a streamed model is held, in a line; empty where nothing is streamed.
std::string StreamedText(const Engine& engine);
// What decoding read, in a line.
std::string IoText(const Engine& engine, const StreamCounts& counts, int64_t tokens);
// Whether packing would make a streamed model faster, in a line; empty where it is packed or in
// memory.
std::string PackingAdvice(const Engine& engine);

}  // namespace hearth::cli
