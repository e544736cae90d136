// What `hearth bench` prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/options/model_options.h"
#include "measure/bench.h"

namespace hearth::cli {

// The bench document (docs/formats/schemas/bench.schema.json) without its profile.
nlohmann::ordered_json BenchJson(Engine& engine, const ModelOptions& options,
                                 const ProbeMemory& memory, const BenchResult& result);

// The same as a table for people.
std::string BenchText(Engine& engine, const ModelOptions& options, const ProbeMemory& memory,
                      const BenchResult& result);

}  // namespace hearth::cli
