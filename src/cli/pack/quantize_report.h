// What `hearth quantize` says of what it wrote.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "measure/agreement.h"
#include "prepare/quantize/quantize.h"

namespace hearth::cli {

// The same text by the model before and after.
struct ForesightPair {
  Foresight before;
  Foresight after;
};

// Matrices that have another type than the recipe's, and those that have no importance: lines for
// standard error, empty where there is nothing to say.
std::string QuantizeNotices(const QuantizeResult& result, bool has_importance);

std::string QuantizeText(const QuantizeResult& result, const std::optional<ForesightPair>& text);

// "weights" to "text" of docs/formats/schemas/quantize.schema.json.
nlohmann::ordered_json QuantizeJson(const QuantizeResult& result, bool has_importance,
                                    const std::optional<ForesightPair>& text);

}  // namespace hearth::cli
