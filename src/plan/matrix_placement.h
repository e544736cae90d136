// Which matrices of a model lie on a device; of a packed one those that are not its FFNs' (P1 §6
// places its neurons).
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace hearth {

struct PlacedLayer {
  bool attention = false;        // its four matrices
  bool shared = false;           // the FFN beside the experts
  std::vector<int32_t> experts;  // ascending; a dense layer's FFN is expert 0
  bool predictor = false;        // of a packed model

  bool any() const { return attention || shared || !experts.empty() || predictor; }
  bool HasExpert(int32_t expert) const {
    return std::binary_search(experts.begin(), experts.end(), expert);
  }
  bool operator==(const PlacedLayer&) const = default;
};

struct MatrixPlacement {
  std::vector<PlacedLayer> layers;  // empty: nothing is on a device
  bool output = false;              // the matrix that makes logits
  // Passes of prompts with at least so many tokens are computed on the device as a whole: what does
  // not lie there is uploaded for them. 0: none are.
  int64_t upload_tokens = 0;
  // Tokens whose keys and values the device has too, of the layers whose attention is there: it
  // attends over them. A multiple of a page's. 0: the processor attends.
  int64_t kv_tokens = 0;

  bool any() const {
    return output || upload_tokens > 0 ||
           std::any_of(layers.begin(), layers.end(),
                       [](const PlacedLayer& layer) { return layer.any(); });
  }
  bool has_predictors() const {
    return std::any_of(layers.begin(), layers.end(),
                       [](const PlacedLayer& layer) { return layer.predictor; });
  }
  bool operator==(const MatrixPlacement&) const = default;
};

// Documents of plans and runs have it (docs/formats/json.md); and as a line for people.
nlohmann::ordered_json MatricesJson(const MatrixPlacement& placement);
std::string MatricesText(const MatrixPlacement& placement);

}  // namespace hearth
