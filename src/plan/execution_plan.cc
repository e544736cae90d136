#include "plan/execution_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>

#include "base/error.h"
#include "plan/json_object.h"
#include "plan/json_reader.h"
#include "plan/ledger.h"

namespace hearth {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMostLayers = 10000;
constexpr size_t kMostExperts = 1 << 16;
constexpr int64_t kMostBytes = std::numeric_limits<int64_t>::max();
constexpr int64_t kMostNeurons = int64_t{1} << 30;
constexpr int kMostCpus = 4096;
constexpr uint64_t kMostPlanBytes = uint64_t{16} << 20;

// 16 hexadecimal digits.
std::string HashOf(JsonObject& document, const char* key) {
  std::string hash = document.Text(key);
  if (hash.size() != 16) document.Fail(key, "16 hexadecimal digits");
  return hash;
}

ordered_json StreamJson(const ExecutionPlan& plan) {
  if (!plan.stream) return nullptr;
  const StreamPlan& stream = *plan.stream;
  return {{"gates_pinned", stream.holds_gates},
          {"pinned_neurons", stream.pinned_neurons},
          {"cache_slots", stream.cache_slots},
          {"range_neurons", stream.range_neurons},
          {"range_buffers", stream.range_buffers},
          {"queue_depth", stream.queue_depth},
          {"cluster_neurons", {stream.clusters.fewest, stream.clusters.most}}};
}

// [fewest, most]. Older plans have none.
ClusterSizes ClustersFromJson(JsonObject& stream) {
  ClusterSizes clusters;
  const char* key = "cluster_neurons";
  if (!stream.Has(key)) return clusters;
  const json& range = stream.Get(key);
  if (!range.is_array() || range.size() != 2) stream.Fail(key, "[fewest, most]");
  clusters.most = stream.IntOf(range[1], key, 1, ClusterSizes::kLimit);
  clusters.fewest = stream.IntOf(range[0], key, 1, clusters.most);
  return clusters;
}

StreamPlan StreamFromJson(JsonObject fields) {
  const StreamPlan stream = {.holds_gates = fields.Bool("gates_pinned"),
                             .pinned_neurons = fields.Int("pinned_neurons", 0, kMostNeurons),
                             .cache_slots = fields.Int("cache_slots", 0, kMostNeurons),
                             .range_neurons = fields.Int("range_neurons", 0, kMostNeurons),
                             .range_buffers = fields.Int("range_buffers", 0, kMostNeurons),
                             .queue_depth = static_cast<int>(
                                 fields.Int("queue_depth", 0, std::numeric_limits<int>::max())),
                             .clusters = ClustersFromJson(fields)};
  fields.Finish();
  return stream;
}

ordered_json DeviceJson(const ExecutionPlan& plan) {
  if (!plan.device) return nullptr;
  ordered_json device = {{"memory_bytes", plan.device->memory_bytes},
                         {"ledger", plan.device->ledger}};
  const MatrixPlacement& matrices = plan.device->matrices;
  if (!matrices.layers.empty()) device["matrices"] = MatricesJson(matrices);
  return device;
}

// [begin, end) of `ranges`, which must follow what was before.
int64_t RangeEnd(JsonObject& ranges, const char* name, int64_t begin, int64_t most) {
  const json& range = ranges.Get(name);
  if (!range.is_array() || range.size() != 2) ranges.Fail(name, "[begin, end]");
  ranges.IntOf(range[0], name, begin, begin);
  return ranges.IntOf(range[1], name, begin, most);
}

// Where the pinned neurons of a layer end that has so many on a device.
int64_t PinnedEnd(const ExecutionPlan& plan, int64_t on_device) {
  return plan.stream ? on_device + plan.stream->pinned_neurons : plan.neurons;
}

void ReadCores(JsonObject cores, ExecutionPlan& plan) {
  const json& compute = cores.Get("compute");
  if (!compute.is_array() || compute.empty()) cores.Fail("compute", "numbers of processors");
  for (const json& cpu : compute) {
    const auto number = static_cast<int>(cores.IntOf(cpu, "compute", 0, kMostCpus - 1));
    const auto& before = plan.compute_cores;
    if (std::find(before.begin(), before.end(), number) != before.end()) {
      cores.Fail("compute", "each processor once");
    }
    plan.compute_cores.push_back(number);
  }
  if (!cores.IsNull("io")) {
    plan.io_core = static_cast<int>(cores.IntOf(cores.Get("io"), "io", 0, kMostCpus - 1));
    const auto& computing = plan.compute_cores;
    if (std::find(computing.begin(), computing.end(), *plan.io_core) != computing.end()) {
      cores.Fail("io", "a processor that is not among those of compute");
    }
  }
  cores.Finish();
}

// Layers are alike but for what is on a device: what one says agrees with the plan's own numbers.
void ReadLayer(JsonObject& fields, ExecutionPlan& plan) {
  const std::string& file = fields.file();
  const std::string mode = fields.OneOf("mode", {"dense", "gated", "predicted"});
  JsonObject ranges = fields.Object("ranges");
  const int64_t device = RangeEnd(ranges, "device", 0, kMostNeurons);
  const int64_t pinned = RangeEnd(ranges, "pinned", device, kMostNeurons);
  const int64_t flash = RangeEnd(ranges, "flash", pinned, kMostNeurons);
  ranges.Finish();
  if (plan.mode.empty()) {
    plan.mode = mode;
    plan.neurons = flash;
  }
  if (mode != plan.mode || flash != plan.neurons) {
    throw Error(ErrorCode::kUnsupported, file, "layers that differ from each other");
  }
  if (pinned != PinnedEnd(plan, device)) {
    throw Error(ErrorCode::kCorrupt, file, "layers.ranges.pinned: its end",
                fmt::format("{}, as stream says", PinnedEnd(plan, device)), std::to_string(pinned));
  }
  const bool has_neurons = plan.device && plan.device->ledger.contains("neurons");
  if (has_neurons) plan.device->layer_neurons.push_back(device);
  if (device > 0 && !has_neurons) {
    throw Error(ErrorCode::kCorrupt, file,
                "layers.ranges.device: neurons there, and no `device` that has neurons");
  }
  ++plan.num_layers;
}

MatrixPlacement MatricesFromJson(JsonObject fields) {
  MatrixPlacement matrices;
  fields.ForEach("layers", kMostLayers, [&](JsonObject& from) {
    PlacedLayer& layer = matrices.layers.emplace_back();
    layer.attention = from.Bool("attention");
    layer.shared = from.Bool("shared");
    layer.predictor = from.Has("predictor") && from.Bool("predictor");
    for (const json& expert : from.List("experts", kMostExperts)) {
      layer.experts.push_back(
          static_cast<int32_t>(from.IntOf(expert, "experts", 0, int64_t{kMostExperts} - 1)));
    }
  });
  matrices.output = fields.Bool("output");
  matrices.upload_tokens = fields.Int("upload_tokens", 0, kMostNeurons);
  matrices.kv_tokens = fields.Has("kv_tokens") ? fields.Int("kv_tokens", 0, kMostNeurons) : 0;
  fields.Finish();
  if (!matrices.any()) fields.Fail("layers", "at least one matrix");
  return matrices;
}

void ReadDevice(JsonObject fields, ExecutionPlan& plan) {
  PlannedDevice& device = plan.device.emplace();
  device.memory_bytes = static_cast<uint64_t>(fields.Int("memory_bytes", 1, kMostBytes));
  const bool has_matrices = fields.Has("matrices");
  if (has_matrices) device.matrices = MatricesFromJson(fields.Object("matrices"));
  JsonObject ledger = fields.Object("ledger");
  std::vector<const char*> names = {"scratch"};
  if (has_matrices) names.push_back("matrices");
  if (!has_matrices || ledger.Has("neurons")) names.push_back("neurons");
  if (device.matrices.upload_tokens > 0) names.push_back("uploads");
  if (device.matrices.kv_tokens > 0) names.insert(names.end(), {"kv", "attention"});
  if (device.matrices.has_predictors()) names.push_back("predictors");
  for (const char* name : names) {
    device.ledger[name] = static_cast<uint64_t>(ledger.Int(name, 1, kMostBytes / 4));
  }
  ledger.Finish();
  fields.Finish();
}

void CheckDevice(const ExecutionPlan& plan, const std::string& file) {
  if (!plan.device) return;
  if (!plan.device->matrices.layers.empty()) {
    const auto count = std::ssize(plan.device->matrices.layers);
    if (count != plan.num_layers) {
      throw Error(ErrorCode::kCorrupt, file, "device.matrices.layers: their number",
                  std::to_string(plan.num_layers), std::to_string(count));
    }
  }
  if (!plan.device->ledger.contains("neurons")) return;
  const std::vector<int64_t>& layers = plan.device->layer_neurons;
  if (std::all_of(layers.begin(), layers.end(), [](int64_t neurons) { return neurons == 0; })) {
    throw Error(ErrorCode::kCorrupt, file, "device: no layer has neurons there");
  }
  if (plan.stream &&
      std::adjacent_find(layers.begin(), layers.end(), std::not_equal_to<>()) != layers.end()) {
    throw Error(ErrorCode::kUnsupported, file,
                "layers with different numbers of neurons on a device, where the rest is streamed");
  }
}

PlannedTime TimeFromJson(JsonObject fields) {
  const PlannedTime time = {
      fields.Number("attention", 0), fields.Number("predictor", 0),
      fields.Number("ffn", 0),       fields.Number("io", 0),
      fields.Number("token", 0),     fields.Has("device") ? fields.Number("device", 0) : 0};
  fields.Finish();
  return time;
}

// Of any names; "weights" is among them, for every run has them.
void ReadLedger(const json& entries, JsonObject ledger, ExecutionPlan& plan) {
  ledger.Get("weights");
  auto left = static_cast<uint64_t>(kMostBytes);  // so that the sum stays below 2^63
  for (const auto& [name, bytes] : entries.items()) {
    const uint64_t entry = ledger.Count(name, 0, left);
    plan.ledger[name] = entry;
    left -= entry;
  }
}

// How neurons are read, and which of them are kept.
void ReadIo(JsonObject& fields, ExecutionPlan& plan) {
  plan.io_strategy = fields.OneOf("io_strategy", {"none", "whole", "halves", "pieces",
                                                  "halves-in-pieces", "sequential", "experts"});
  const bool streams = !fields.IsNull("stream");
  if (streams || !fields.IsNull("io_backend")) {
    plan.io_backend = fields.OneOf("io_backend", {"io_uring", "pread"});
  }
  plan.cache_policy = fields.Text("cache_policy");
  if (streams && plan.cache_policy.empty()) fields.Fail("cache_policy", "the name of a policy");
  if (streams) plan.stream = StreamFromJson(fields.Object("stream"));
}

void ReadKv(JsonObject kv, ExecutionPlan& plan) {
  plan.kv_codec = kv.OneOf("dtype", {"f16", "f32", "k8v8", "k4v8", "k8", "k4"});
  kv.OneOf("place", {"memory"});
  plan.context = kv.Int("context", 1, kMostBytes);
  kv.Finish();
}

}  // namespace

std::vector<int> ExecutionPlan::all_cores() const {
  std::vector<int> cores = compute_cores;
  if (io_core) cores.push_back(*io_core);
  std::sort(cores.begin(), cores.end());
  return cores;
}

uint64_t ExecutionPlan::ledger_bytes() const { return LedgerSum(ledger); }

ordered_json PlanJson(const ExecutionPlan& plan) {
  ordered_json layers = ordered_json::array();
  for (int64_t l = 0; l < plan.num_layers; ++l) {
    const int64_t device = plan.device_neurons(l), pinned = PinnedEnd(plan, device);
    layers.push_back({{"mode", plan.mode},
                      {"ranges",
                       {{"device", {0, device}},
                        {"pinned", {device, pinned}},
                        {"flash", {pinned, plan.neurons}}}}});
  }
  ordered_json io = nullptr;
  if (!plan.io_backend.empty()) io = plan.io_backend;
  return {{"decode_tok_s", plan.decode_tok_s},
          {"prefill_tok_s", plan.prefill_tok_s},
          {"bound", plan.bound},
          {"time_ms",
           {{"attention", plan.time.attention_ms},
            {"predictor", plan.time.predictor_ms},
            {"ffn", plan.time.ffn_ms},
            {"io", plan.time.io_ms},
            {"device", plan.time.device_ms},
            {"token", plan.time.token_ms}}},
          {"miss_rate", plan.miss_rate},
          {"bytes_read_per_token", plan.bytes_read_per_token},
          {"budget_bytes", plan.budget_bytes},
          {"ledger", plan.ledger},
          {"cores",
           {{"compute", plan.compute_cores},
            {"io", plan.io_core ? ordered_json(*plan.io_core) : ordered_json(nullptr)}}},
          {"io_strategy", plan.io_strategy},
          {"io_backend", io},
          {"cache_policy", plan.cache_policy},
          {"stream", StreamJson(plan)},
          {"device", DeviceJson(plan)},
          {"layers", layers},
          {"kv", {{"dtype", plan.kv_codec}, {"place", "memory"}, {"context", plan.context}}},
          {"prefill_device", "cpu"},
          {"model_hash", plan.model_hash},
          {"hardware_hash", plan.hardware_hash}};
}

ExecutionPlan PlanFromJson(const json& document, const std::string& file) {
  JsonObject fields(document, file, ErrorCode::kCorrupt);
  ExecutionPlan plan;
  plan.model_hash = HashOf(fields, "model_hash");
  plan.hardware_hash = HashOf(fields, "hardware_hash");
  plan.decode_tok_s = fields.Number("decode_tok_s", 0);
  plan.prefill_tok_s = fields.Number("prefill_tok_s", 0);
  plan.bound = fields.OneOf("bound", {"compute", "memory", "flash", "device"});
  plan.time = TimeFromJson(fields.Object("time_ms"));
  plan.miss_rate = fields.Number("miss_rate", 0, 1);
  plan.bytes_read_per_token =
      static_cast<uint64_t>(fields.Int("bytes_read_per_token", 0, kMostBytes));
  plan.budget_bytes = static_cast<uint64_t>(fields.Int("budget_bytes", 1, kMostBytes));
  ReadLedger(fields.Get("ledger"), fields.Object("ledger"), plan);
  ReadCores(fields.Object("cores"), plan);
  ReadIo(fields, plan);
  // Plans of before there were devices do not say it.
  if (fields.Has("device") && !fields.IsNull("device")) ReadDevice(fields.Object("device"), plan);
  fields.ForEach("layers", kMostLayers, [&](JsonObject& layer) { ReadLayer(layer, plan); });
  if (plan.num_layers == 0) fields.Fail("layers", "at least one");
  CheckDevice(plan, file);
  ReadKv(fields.Object("kv"), plan);
  fields.OneOf("prefill_device", {"cpu"});
  fields.Finish();
  return plan;
}

ExecutionPlan ReadPlan(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::kNotFound, path, "this plan cannot be read");
  file.seekg(0, std::ios::end);
  const auto bytes = static_cast<int64_t>(file.tellg());
  if (bytes < 0 || static_cast<uint64_t>(bytes) > kMostPlanBytes) {
    throw Error(ErrorCode::kCorrupt, path, "this is no plan");
  }
  file.seekg(0);
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read(text.data(), bytes);
  const json document = ReadJsonDocument(text, path, ErrorCode::kCorrupt);
  if (document.is_discarded()) throw Error(ErrorCode::kCorrupt, path, "is not a JSON document");
  return PlanFromJson(document, path);
}

}  // namespace hearth
