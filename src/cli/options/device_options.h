// A device beside the processor: the options of commands that compute with a model, and what they
// report of it (docs/devices.md).
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "plan/execution_plan.h"

namespace hearth::cli {

struct DeviceArguments {
  DeviceRequest request;
  // From how many tokens on matrices are uploaded for prompts; nothing: as measured.
  std::optional<int64_t> prompt_tokens;
  bool says_prompts = false;  // the user named --device-prompts
  bool says_kv = false;       // the user named --device-kv
  std::string trace_path;     // empty: no trace
};

// --device, --device-memory, --device-kv, --device-prompts, and for experiments --device-neurons,
// --device-layers, --device-experts, --trace-device.
void AddDeviceOptions(CLI::App& command, DeviceArguments& arguments);

// Throws UsageError where options have no effect. Before anything is loaded.
void CheckDeviceUsage(const DeviceArguments& arguments);

// What the options ask of an engine for a model, with what a plan puts on a device. Throws
// UsageError where either lacks the other.
DeviceRequest DeviceRequestOf(const DeviceArguments& arguments,
                              const std::optional<ExecutionPlan>& plan, bool is_packed);

// Says in a line why the processor computes alone, where --device auto could not use a device.
void SayWhyNoDevice(const Engine& engine);

// Where there is a trace, writes it as a document of Chrome's trace format, for about:tracing and
// Perfetto. At the end of a command. Throws Error(kIo).
void WriteDeviceTrace(const DeviceArguments& arguments, const Engine& engine);

// The `device` of `memory` (docs/formats/json.md); null where no device is used.
nlohmann::ordered_json DeviceJson(Engine& engine);
// What is on the device, in a line; its ledger, as lines. Empty where no device is used.
std::string DeviceText(const Engine& engine);
std::string DeviceLedgerText(const Engine& engine);

}  // namespace hearth::cli
