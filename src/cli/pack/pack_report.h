// What `hearth pack` says it did.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/pack/pack_text.h"
#include "cli/pack/pack_trial.h"
#include "prepare/pack/pack.h"

namespace hearth::cli {

struct PackReport {
  std::string path;
  PackResult result;
  std::optional<TextLessons> lessons;  // where there was a text
  PackTrial trial;
  bool mode_was_given = false;
};

std::string PackText(const PackReport& report);
nlohmann::ordered_json PackJson(const PackReport& report);  // docs/formats/schemas/pack.schema.json

}  // namespace hearth::cli
