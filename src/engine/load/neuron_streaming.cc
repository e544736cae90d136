#include "engine/load/neuron_streaming.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "format/packed_file.h"

namespace hearth {
namespace {

constexpr double kDefaultPinnedShare = 0.5;

// Flash reads long runs at least this many times as fast as single neurons; small neurons are
// slower still.
constexpr double kGainOfRuns = 4;

// Whether it is faster to read the second halves of the neurons that fire, one by one, than all
// bundles in order. The packed file says how many fire; if it does not, few are assumed to.
bool PaysToReadByNeuron(const GgufFile& file, const ModelSpec& spec, const BundleLayout& layout) {
  const std::optional<std::vector<double>> rates = ReadBundleRates(file, spec.num_layers);
  if (!rates || rates->empty()) return true;
  const double active =
      std::accumulate(rates->begin(), rates->end(), 0.0) / static_cast<double>(rates->size());
  const double half =
      static_cast<double>(layout.stride - layout.split) / static_cast<double>(layout.stride);
  return active * half * kGainOfRuns < 1;
}

}  // namespace

bool CanLookAhead(const ModelSpec& spec, FfnMode mode) {
  return mode == FfnMode::kPredicted && MainFfn(spec).num_experts == 0;
}

StreamedBundles StreamedBundles::TakeFrom(LoadPlan& plan, const GgufFile& file, FfnMode mode,
                                          std::optional<bool> holds_gates) {
  if (file.num_parts() != 1) {
    throw Error(ErrorCode::kUnsupported, file.path(),
                "a packed model in several files cannot be streamed");
  }
  StreamedBundles bundles;
  const FfnSpec& ffn = MainFfn(plan.spec);
  bundles.hidden_size = plan.spec.hidden_size;
  bundles.num_layers = plan.spec.num_layers;
  bundles.num_experts = std::max<int64_t>(ffn.num_experts, 1);
  for (const ResidentTensor& tensor : plan.tensors) {
    if (!tensor.bundles) continue;
    if (bundles.layer_offsets.empty()) bundles.layout = tensor.bundles->layout;
    if (tensor.bundles->layout != bundles.layout ||
        tensor.decl.first + tensor.decl.rows != ffn.intermediate_size ||
        tensor.decl.experts != bundles.num_experts) {
      throw Error(ErrorCode::kUnsupported, file.path(),
                  "layers with FFNs of different shapes cannot be streamed");
    }
    if (!bundles.layer_offsets.empty() && tensor.decl.first != bundles.first_neuron) {
      throw Error(ErrorCode::kUnsupported, file.path(),
                  "layers with different numbers of neurons on a device cannot be streamed");
    }
    bundles.layer_offsets.push_back(tensor.stored->offset + tensor.stored_begin());
    bundles.first_neuron = tensor.decl.first;
    plan.weights_bytes = std::min(plan.weights_bytes, tensor.offset);
    DescribeRows(tensor, *plan.weights);
  }
  // Bundles are the last tensors of a plan.
  std::erase_if(plan.tensors, [](const ResidentTensor& t) { return t.bundles.has_value(); });
  bundles.shape = BundleSource::ShapeOf(bundles.layout, bundles.num_layers * bundles.num_experts,
                                        ffn.intermediate_size - bundles.first_neuron);
  if (mode == FfnMode::kGated && CanSkipNeurons(ffn.activation)) {
    const bool holds =
        holds_gates ? *holds_gates : PaysToReadByNeuron(file, plan.spec, bundles.layout);
    if (holds) bundles.gates = GatePlace::kInMemory;
  }
  bundles.can_look_ahead = CanLookAhead(plan.spec, mode);
  return bundles;
}

StreamOptions StreamedBundles::Possible(const StreamOptions& options) const {
  StreamOptions possible = options;
  if (!can_look_ahead) possible.lookahead = Lookahead::kOff;
  return possible;
}

uint64_t StreamedBundles::OverheadBytes(const StreamingOptions& options) const {
  // As if every neuron had a place in the cache, and could be listed.
  StreamPlan most;
  most.holds_gates = gates == GatePlace::kInMemory;
  most.cache_slots = shape.all_neurons();
  most.range_neurons = (shape.neurons + StreamPlan::kRangeGrain - 1) / StreamPlan::kRangeGrain *
                       StreamPlan::kRangeGrain;
  most.range_buffers = 2;
  return StreamedFfns::ChargedBytes(shape, most, hidden_size, Possible(options.pipeline)) -
         most.arena_bytes(shape) - most.gates_bytes(shape) + kRoundingBytes + shape.bundle_bytes;
}

std::unique_ptr<AsyncFile> OpenStreamedFile(const std::string& path,
                                            const StreamingOptions& options) {
  return options.device ? OpenEmulatedFile(path, *options.device) : OpenAsyncFile(path, options.io);
}

uint64_t StreamedBundles::SmallestBytes(const StreamingOptions& options) const {
  return OverheadBytes(options) + SmallestStreamBytes(shape);
}

StreamPlan StreamedBundles::PlanFor(uint64_t bytes, const StreamingOptions& options) const {
  const uint64_t overhead = OverheadBytes(options);
  const bool pins_half = options.pipeline.pipeline != PipelineKind::kLlmFlash;
  return PlanStream(shape, bytes > overhead ? bytes - overhead : 0,
                    options.pinned_share.value_or(pins_half ? kDefaultPinnedShare : 0), gates);
}

void StreamedBundles::AddTo(std::map<std::string, uint64_t>& ledger, const StreamPlan& plan,
                            const StreamingOptions& options) const {
  const uint64_t arena = Buffer::ChargedBytes(plan.arena_bytes(shape));
  const uint64_t gate_bytes = Buffer::ChargedBytes(plan.gates_bytes(shape));
  ledger["neurons"] = arena - plan.lent.bytes();
  if (plan.lent.count > 0) ledger["kv cache"] = plan.lent.bytes();
  if (gate_bytes > 0) ledger["gates"] = gate_bytes;
  ledger["cache tables"] =
      BundleStore::ChargedBytes(shape, plan, options.pipeline.cache_policy()) - arena - gate_bytes;
  ledger["activations"] +=
      DecodePipeline::ChargedBytes(shape, plan, hidden_size, Possible(options.pipeline).decode());
}

std::unique_ptr<StreamedFfns> StreamedBundles::Open(const std::string& path, Budget& budget,
                                                    const StreamPlan& plan,
                                                    const StreamingOptions& options) const {
  BundleSource source = {.file = OpenStreamedFile(path, options),
                         .layout = layout,
                         .hidden_size = hidden_size,
                         .num_layers = num_layers,
                         .num_experts = num_experts,
                         .neurons = shape.neurons,
                         .first_neuron = first_neuron,
                         .layer_offsets = layer_offsets};
  return std::make_unique<StreamedFfns>(budget, std::move(source), plan,
                                        Possible(options.pipeline));
}

}  // namespace hearth
