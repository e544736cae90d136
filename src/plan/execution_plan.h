// How a model is to be run on a machine: what the planner writes (P2 §5.1) and an engine
// obeys. Plain data; as JSON it is a document of its own (docs/formats/json.md).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan/planned_device.h"
#include "plan/stream_plan.h"

namespace hearth {

// Of single tokens, the time of each part by the cost model, in milliseconds.
struct PlannedTime {
  double attention_ms = 0;  // with norms, the output matrix and what else is not an FFN's
  double predictor_ms = 0;
  double ffn_ms = 0;     // computing neurons and taking in what was read
  double io_ms = 0;      // reading them
  double token_ms = 0;   // attention + predictor + the largest of the others, layer by layer
  double device_ms = 0;  // neurons on a device, with synchronization
};

struct ExecutionPlan {
  // Of what: ModelHash and HardwareProfile::MachineHash, in hexadecimal.
  std::string model_hash;
  std::string hardware_hash;

  double decode_tok_s = 0;
  double prefill_tok_s = 0;
  std::string bound;  // "compute", "memory", "flash" or "device": what limits single tokens
  PlannedTime time;
  double miss_rate = 0;  // of listed neurons, those that are read
  uint64_t bytes_read_per_token = 0;

  uint64_t budget_bytes = 0;
  std::map<std::string, uint64_t> ledger;  // as the engine will charge it
  std::vector<int> compute_cores;          // processors that compute; they submit reads too
  // Where they do not: the processor that reads single neurons (P2 §5.1, c_io), and computes with
  // the others while nothing is to be read.
  std::optional<int> io_core;
  // "none", "whole", "halves", "pieces", "halves-in-pieces", "sequential" or "experts".
  std::string io_strategy;
  std::string io_backend;  // "io_uring" or "pread"; empty with "none"
  std::string mode;        // of every layer: "dense", "gated" or "predicted"
  int64_t num_layers = 0;
  int64_t neurons = 0;  // of one FFN
  std::string cache_policy;
  // Where a packed model does not fit; its numbers are of single FFNs, without what is on a device.
  std::optional<StreamPlan> stream;
  // Of a packed model, the first neurons of its FFNs; of another, matrices. Where the rest is
  // streamed, every layer has the same number of them.
  std::optional<PlannedDevice> device;
  std::string kv_codec;  // the name of a KvCodec; the cache is in memory
  int64_t context = 0;   // tokens

  uint64_t ledger_bytes() const;
  // Of a layer.
  int64_t device_neurons(int64_t layer) const {
    return device && !device->layer_neurons.empty()
               ? device->layer_neurons[static_cast<size_t>(layer)]
               : 0;
  }
  // Those that compute and the one that reads, ascending.
  std::vector<int> all_cores() const;
  int threads() const { return static_cast<int>(compute_cores.size()) + (io_core ? 1 : 0); }
};

nlohmann::ordered_json PlanJson(const ExecutionPlan& plan);
// Throws Error(kCorrupt) for what is not such a document, Error(kUnsupported) for what no engine
// can do yet (layers that stream differently, KV elsewhere than in memory).
ExecutionPlan PlanFromJson(const nlohmann::json& document, const std::string& file);
ExecutionPlan ReadPlan(const std::string& path);

}  // namespace hearth
