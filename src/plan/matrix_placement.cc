#include "plan/matrix_placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace hearth {

nlohmann::ordered_json MatricesJson(const MatrixPlacement& placement) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const PlacedLayer& layer : placement.layers) {
    layers.push_back({{"attention", layer.attention},
                      {"shared", layer.shared},
                      {"experts", layer.experts},
                      {"predictor", layer.predictor}});
  }
  return {{"layers", layers},
          {"output", placement.output},
          {"upload_tokens", placement.upload_tokens},
          {"kv_tokens", placement.kv_tokens}};
}

std::string MatricesText(const MatrixPlacement& placement) {
  int64_t attention = 0, shared = 0, experts = 0, predictors = 0;
  for (const PlacedLayer& layer : placement.layers) {
    attention += layer.attention ? 1 : 0;
    shared += layer.shared ? 1 : 0;
    experts += std::ssize(layer.experts);
    predictors += layer.predictor ? 1 : 0;
  }
  std::vector<std::string> parts;
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
  };
  add(attention, "attention blocks");
  if (placement.kv_tokens > 0) {
    parts.push_back(fmt::format("keys and values of {} tokens", placement.kv_tokens));
  }
  add(shared, "FFNs beside experts");
  add(experts, "FFNs or experts");
  add(predictors, "predictors");
  if (placement.output) parts.emplace_back("the output matrix");
  if (placement.upload_tokens > 0) {
    parts.push_back(fmt::format("all of prompts from {} tokens on", placement.upload_tokens));
  }
  return fmt::format("of {} layers {}", placement.layers.size(), fmt::join(parts, ", "));
}

}  // namespace hearth
