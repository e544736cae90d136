#include "cli/models/inspect_packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "format/bundle_layout.h"
#include "format/packed_file.h"
#include "model/registry.h"
#include "sparsity/predictor.h"
#include "sparsity/profile_stats.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

Json ActivityJson(const GgufFile& file, int64_t num_layers) {
  const std::optional<std::vector<double>> rates = ReadBundleRates(file, num_layers);
  if (!rates || rates->empty()) return nullptr;
  const double sum = std::accumulate(rates->begin(), rates->end(), 0.0);
  const auto silent = std::count(rates->begin(), rates->end(), 0.0);
  const auto count = static_cast<double>(rates->size());
  const auto tokens = file.metadata().FindUint("hearth.profile.tokens");
  return {{"profile_tokens", tokens ? Json(*tokens) : Json(nullptr)},
          {"mean_rate", sum / count},
          {"neurons_with_80_percent", CarryingShare(*rates, kHotShare)},
          {"silent_neurons", static_cast<double>(silent) / count}};
}

Json PredictorsJson(const GgufFile& file, const ModelSpec& spec) {
  const std::optional<PredictorSpec> predictors = ReadPredictorSpec(file, spec);
  if (!predictors) return nullptr;
  uint64_t bytes = 0;
  std::string type;
  for (int64_t l = 0; l < spec.num_layers; ++l) {
    for (const char* part : {"down", "up", "bias"}) {
      const GgufTensor* tensor = file.FindTensorOrNull(PredictorTensorName(l, part));
      if (tensor == nullptr) continue;
      bytes += tensor->bytes;
      if (type.empty()) type = NameOf(tensor->dtype);
    }
  }
  return {{"input", PredictorInputName(predictors->input)},
          {"relu", predictors->relu},
          {"type", type},
          {"bytes", bytes},
          {"share_of_file", static_cast<double>(bytes) / static_cast<double>(file.file_bytes())},
          {"ranks", predictors->ranks},
          {"thresholds", predictors->thresholds}};
}

Json LayoutJson(const BundleLayout& layout) {
  Json parts = Json::array();
  for (const BundlePart& part : layout.parts) {
    const bool is_check = part.role == BundleRole::kCheck;
    parts.push_back({{"role", layout.RoleName(part.role)},
                     {"type", is_check ? "xxh32" : NameOf(part.dtype)},
                     {"offset", part.offset},
                     {"bytes", part.bytes}});
  }
  return {{"stride", layout.stride}, {"split", layout.split}, {"parts", parts}};
}

Json DescribePacking(const GgufFile& file) {
  CheckPackedFile(file);
  const ModelSpec spec = ReadModelSpec(file);
  uint64_t neurons = 0;
  uint64_t bytes = 0;
  bool has_order = true;
  for (int64_t l = 0; l < spec.num_layers; ++l) {
    const GgufTensor& bundles = file.GetTensor(BundleTensorName(l));
    neurons += bundles.ne[1] * bundles.ne[2];
    bytes += bundles.bytes;
    has_order = has_order && file.FindTensorOrNull(BundleOrderName(l)) != nullptr;
  }
  const uint64_t stride = file.GetTensor(BundleTensorName(0)).ne[0];
  return {{"version", file.metadata().GetUint(kFormatVersionKey)},
          {"source_hash", fmt::format("{:016x}", file.metadata().GetUint(kSourceHashKey))},
          {"bundle", LayoutJson(ReadBundleLayout(file.metadata(), spec.hidden_size, stride))},
          {"neurons", neurons},
          {"bundle_bytes", bytes},
          {"order", has_order},
          {"activity", ActivityJson(file, spec.num_layers)},
          {"predictors", PredictorsJson(file, spec)}};
}

std::string ActivityText(const Json& activity, bool has_order) {
  const std::string order = has_order ? "" : ", their original indices are not in the file";
  if (activity.is_null()) {
    return fmt::format("neurons    activation rates unknown: in the order of the source{}\n",
                       order);
  }
  const std::string tokens =
      activity["profile_tokens"].is_null()
          ? ""
          : fmt::format(" over {} tokens", activity["profile_tokens"].get<uint64_t>());
  return fmt::format(
      "neurons    {:.1f}% active on average{}, {:.1f}% of them make 80% of the activations, "
      "{:.1f}% were never active{}\n",
      100 * activity["mean_rate"].get<double>(), tokens,
      100 * activity["neurons_with_80_percent"].get<double>(),
      100 * activity["silent_neurons"].get<double>(), order);
}

std::string PredictorsText(const Json& predictors) {
  if (predictors.is_null()) return "predictors none\n";
  const auto ranks = predictors["ranks"].get<std::vector<int64_t>>();
  const auto thresholds = predictors["thresholds"].get<std::vector<float>>();
  const auto [least, most] = std::minmax_element(ranks.begin(), ranks.end());
  std::string out = fmt::format(
      "predictors rank {} to {}, {}, {} ({:.1f}% of the file), from the {}{}\n", *least, *most,
      predictors["type"].get<std::string>(), FormatSize(predictors["bytes"].get<uint64_t>()),
      100 * predictors["share_of_file"].get<double>(),
      predictors["input"] == "residual" ? "residual" : "FFN's input",
      predictors["relu"].get<bool>() ? ", with relu inside" : "");
  // FFNs without a predictor have a threshold that everything passes.
  std::vector<float> stated;
  for (const float t : thresholds) {
    if (t > std::numeric_limits<float>::lowest()) stated.push_back(t);
  }
  if (!stated.empty()) {
    const auto [low, high] = std::minmax_element(stated.begin(), stated.end());
    out += fmt::format("           thresholds {:.3f} to {:.3f}\n", *low, *high);
  }
  return out;
}

}  // namespace

Json PackingJson(const GgufFile& file) {
  if (!IsPacked(file.metadata())) return nullptr;
  try {
    return DescribePacking(file);
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

std::string PackingText(const Json& packing) {
  if (packing.is_null()) return "";
  if (packing.contains("error")) {
    return fmt::format("packed     {}\n", packing["error"].get<std::string>());
  }
  const Json& bundle = packing["bundle"];
  std::string parts;
  for (const Json& part : bundle["parts"]) {
    parts += fmt::format("{}{} {} {}", parts.empty() ? "" : ", ", part["role"].get<std::string>(),
                         part["type"].get<std::string>(), part["bytes"].get<uint64_t>());
  }
  return fmt::format(
             "packed     version {}, from a model with hash {}\n"
             "bundles    {} neurons of {} bytes, {}; split at {}\n"
             "           {}\n",
             packing["version"].get<uint64_t>(), packing["source_hash"].get<std::string>(),
             packing["neurons"].get<uint64_t>(), bundle["stride"].get<uint64_t>(),
             FormatSize(packing["bundle_bytes"].get<uint64_t>()), bundle["split"].get<uint64_t>(),
             parts) +
         ActivityText(packing["activity"], packing["order"].get<bool>()) +
         PredictorsText(packing["predictors"]);
}

}  // namespace hearth::cli
