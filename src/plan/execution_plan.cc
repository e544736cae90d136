#include "plan/execution_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "base/error.h"

namespace hearth {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kMostLayers = 10000;
constexpr int64_t kMostNeurons = int64_t{1} << 30;
constexpr int kMostCpus = 4096;
constexpr uint64_t kMostPlanBytes = uint64_t{16} << 20;

// Fields of a document, each refused with its path in it.
class Fields {
 public:
  Fields(const json& object, const std::string& file, std::string path)
      : object_(object), file_(file), path_(std::move(path)) {
    if (!object.is_object()) Refuse("", "an object");
  }

  Fields Object(const char* name) const { return {At(name), file_, Path(name)}; }
  const json& At(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) {
      throw Error(ErrorCode::kCorrupt, file_, Path(name) + " is missing");
    }
    return *found;
  }
  std::string Text(const char* name, std::initializer_list<const char*> allowed) const {
    const json& value = At(name);
    std::string expected;
    for (const char* one : allowed) {
      if (value.is_string() && value.get_ref<const std::string&>() == one) return one;
      expected += (expected.empty() ? "" : ", ") + std::string(one);
    }
    Refuse(name, "one of: " + expected);
  }
  std::string Hash(const char* name) const {
    const json& value = At(name);
    const bool is_hash = value.is_string() && value.get_ref<const std::string&>().size() == 16;
    if (!is_hash) Refuse(name, "16 hexadecimal digits");
    return value.get<std::string>();
  }
  double Number(const char* name) const {
    const json& value = At(name);
    const bool is_good =
        value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0;
    if (!is_good) Refuse(name, "a number from 0 on");
    return value.get<double>();
  }
  int64_t Integer(const char* name, int64_t least, int64_t most) const {
    return IntegerOf(At(name), name, least, most);
  }
  int64_t IntegerOf(const json& value, const char* name, int64_t least, int64_t most) const {
    const bool is_good = value.is_number_integer() &&
                         (!value.is_number_unsigned() ||
                          value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}) &&
                         value.get<int64_t>() >= least && value.get<int64_t>() <= most;
    if (!is_good) Refuse(name, fmt::format("an integer from {} to {}", least, most));
    return value.get<int64_t>();
  }
  [[noreturn]] void Refuse(const char* name, const std::string& expected) const {
    throw Error(ErrorCode::kCorrupt, file_, fmt::format("{}: expected {}", Path(name), expected));
  }

 private:
  std::string Path(const char* name) const {
    return path_.empty() || *name == '\0' ? path_ + name : path_ + "." + name;
  }

  const json& object_;
  const std::string& file_;
  std::string path_;
};

ordered_json StreamJson(const ExecutionPlan& plan) {
  if (!plan.stream) return nullptr;
  const StreamPlan& stream = *plan.stream;
  return {{"gates_pinned", stream.holds_gates},    {"pinned_neurons", stream.pinned_neurons},
          {"cache_slots", stream.cache_slots},     {"range_neurons", stream.range_neurons},
          {"range_buffers", stream.range_buffers}, {"queue_depth", stream.queue_depth}};
}

StreamPlan StreamFromJson(const Fields& fields) {
  const json& gates = fields.At("gates_pinned");
  if (!gates.is_boolean()) fields.Refuse("gates_pinned", "true or false");
  return {.holds_gates = gates.get<bool>(),
          .pinned_neurons = fields.Integer("pinned_neurons", 0, kMostNeurons),
          .cache_slots = fields.Integer("cache_slots", 0, kMostNeurons),
          .range_neurons = fields.Integer("range_neurons", 0, kMostNeurons),
          .range_buffers = fields.Integer("range_buffers", 0, kMostNeurons),
          .queue_depth =
              static_cast<int>(fields.Integer("queue_depth", 0, std::numeric_limits<int>::max()))};
}

// [begin, end) of `ranges`, which must follow what was before.
int64_t RangeEnd(const Fields& ranges, const char* name, int64_t begin, int64_t most) {
  const json& range = ranges.At(name);
  if (!range.is_array() || range.size() != 2) ranges.Refuse(name, "[begin, end]");
  ranges.IntegerOf(range[0], name, begin, begin);
  return ranges.IntegerOf(range[1], name, begin, most);
}

int64_t PinnedNeurons(const ExecutionPlan& plan) {
  return plan.stream ? plan.stream->pinned_neurons : plan.neurons;
}

void ReadCores(const Fields& cores, const std::string& file, ExecutionPlan& plan) {
  const json& compute = cores.At("compute");
  if (!compute.is_array() || compute.empty()) cores.Refuse("compute", "numbers of processors");
  for (const json& cpu : compute) {
    const auto number = static_cast<int>(cores.IntegerOf(cpu, "compute", 0, kMostCpus - 1));
    const auto& before = plan.compute_cores;
    if (std::find(before.begin(), before.end(), number) != before.end()) {
      cores.Refuse("compute", "each processor once");
    }
    plan.compute_cores.push_back(number);
  }
  if (!cores.At("io").is_null()) {
    throw Error(ErrorCode::kUnsupported, file,
                "a processor for reading alone: threads that "
                "compute submit reads too");
  }
}

// All layers are alike: what they say agrees with the plan's own numbers.
void ReadLayers(const json& layers, const std::string& file, ExecutionPlan& plan) {
  if (!layers.is_array() || layers.empty() || layers.size() > static_cast<size_t>(kMostLayers)) {
    throw Error(ErrorCode::kCorrupt, file, fmt::format("layers: expected 1 to {}", kMostLayers));
  }
  plan.num_layers = static_cast<int64_t>(layers.size());
  for (const json& layer : layers) {
    const Fields fields(layer, file, "layers");
    const std::string mode = fields.Text("mode", {"dense", "gated", "predicted"});
    const Fields ranges = fields.Object("ranges");
    const int64_t device = RangeEnd(ranges, "device", 0, kMostNeurons);
    if (device > 0) {
      throw Error(ErrorCode::kUnsupported, file, "neurons on a device: no engine has one yet");
    }
    const int64_t pinned = RangeEnd(ranges, "pinned", device, kMostNeurons);
    const int64_t flash = RangeEnd(ranges, "flash", pinned, kMostNeurons);
    if (plan.mode.empty()) {
      plan.mode = mode;
      plan.neurons = flash;
    }
    if (mode != plan.mode || flash != plan.neurons) {
      throw Error(ErrorCode::kUnsupported, file, "layers that differ from each other");
    }
    if (pinned != PinnedNeurons(plan)) {
      throw Error(ErrorCode::kCorrupt, file, "layers.ranges.pinned: its end",
                  fmt::format("{}, as stream says", PinnedNeurons(plan)), std::to_string(pinned));
    }
  }
}

}  // namespace

uint64_t ExecutionPlan::ledger_bytes() const {
  uint64_t sum = 0;
  for (const auto& [name, bytes] : ledger) sum += bytes;
  return sum;
}

ordered_json PlanJson(const ExecutionPlan& plan) {
  ordered_json layers = ordered_json::array();
  const int64_t pinned = PinnedNeurons(plan);
  for (int64_t l = 0; l < plan.num_layers; ++l) {
    layers.push_back(
        {{"mode", plan.mode},
         {"ranges",
          {{"device", {0, 0}}, {"pinned", {0, pinned}}, {"flash", {pinned, plan.neurons}}}}});
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
            {"token", plan.time.token_ms}}},
          {"miss_rate", plan.miss_rate},
          {"bytes_read_per_token", plan.bytes_read_per_token},
          {"budget_bytes", plan.budget_bytes},
          {"ledger", plan.ledger},
          {"cores", {{"compute", plan.compute_cores}, {"io", nullptr}}},
          {"io_strategy", plan.io_strategy},
          {"io_backend", io},
          {"cache_policy", plan.cache_policy},
          {"stream", StreamJson(plan)},
          {"layers", layers},
          {"kv", {{"dtype", plan.kv_dtype}, {"place", "memory"}, {"context", plan.context}}},
          {"prefill_device", "cpu"},
          {"model_hash", plan.model_hash},
          {"hardware_hash", plan.hardware_hash}};
}

ExecutionPlan PlanFromJson(const json& document, const std::string& file) {
  const Fields fields(document, file, "");
  ExecutionPlan plan;
  plan.model_hash = fields.Hash("model_hash");
  plan.hardware_hash = fields.Hash("hardware_hash");
  plan.decode_tok_s = fields.Number("decode_tok_s");
  plan.prefill_tok_s = fields.Number("prefill_tok_s");
  plan.bound = fields.Text("bound", {"compute", "memory", "flash"});
  const Fields time = fields.Object("time_ms");
  plan.time = {time.Number("attention"), time.Number("predictor"), time.Number("ffn"),
               time.Number("io"), time.Number("token")};
  plan.miss_rate = fields.Number("miss_rate");
  constexpr int64_t kMostBytes = std::numeric_limits<int64_t>::max();
  plan.bytes_read_per_token =
      static_cast<uint64_t>(fields.Integer("bytes_read_per_token", 0, kMostBytes));
  plan.budget_bytes = static_cast<uint64_t>(fields.Integer("budget_bytes", 1, kMostBytes));
  const json& ledger = fields.Object("ledger").At("weights");  // every run has them
  if (!ledger.is_number_unsigned()) fields.Refuse("ledger", "bytes by name");
  for (const auto& [name, bytes] : document.at("ledger").items()) {
    if (!bytes.is_number_unsigned()) fields.Refuse("ledger", "bytes by name");
    plan.ledger[name] = bytes.get<uint64_t>();
  }
  ReadCores(fields.Object("cores"), file, plan);
  plan.io_strategy =
      fields.Text("io_strategy", {"none", "whole", "halves", "sequential", "experts"});
  if (!fields.At("io_backend").is_null()) {
    plan.io_backend = fields.Text("io_backend", {"io_uring", "pread"});
  }
  if (!fields.At("cache_policy").is_string()) fields.Refuse("cache_policy", "a name");
  plan.cache_policy = fields.At("cache_policy").get<std::string>();
  if (!fields.At("stream").is_null()) plan.stream = StreamFromJson(fields.Object("stream"));
  ReadLayers(fields.At("layers"), file, plan);
  const Fields kv = fields.Object("kv");
  plan.kv_dtype = kv.Text("dtype", {"f16", "f32"});
  kv.Text("place", {"memory"});
  plan.context = kv.Integer("context", 1, kMostBytes);
  fields.Text("prefill_device", {"cpu"});
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
  const json document = json::parse(file, nullptr, false);
  if (document.is_discarded()) throw Error(ErrorCode::kCorrupt, path, "this is no JSON document");
  return PlanFromJson(document, path);
}

}  // namespace hearth
