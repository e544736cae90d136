// Parts of JSON documents and statistics that several commands print (docs/formats/json.md).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/options/model_options.h"
#include "engine/engine.h"
#include "engine/session/session.h"
#include "measure/quality.h"

namespace hearth::cli {

// {"budget_bytes", "rss_peak_bytes", "ledger", "kv", "device"}; budget_bytes is null without
// --memory.
nlohmann::ordered_json MemoryJson(Engine& engine, const ModelOptions& options);

// {"tokens", "ms", "tok_s"}.
nlohmann::ordered_json PhaseJson(const PhaseTime& phase);

// Shares of neurons, as in bench and eval; and as one line, empty where there is nothing to say.
nlohmann::ordered_json QualityJson(const Quality& quality);
std::string QualityText(const Quality& quality);

// For --verbose: what runs where, as a line, and the ledger as lines.
std::string EngineText(Engine& engine, const ModelOptions& options);
std::string LedgerText(const Engine& engine);

// JSON text in which bytes that are no UTF-8 are replaced, so that it can always be written.
std::string DumpJson(const nlohmann::ordered_json& json);

}  // namespace hearth::cli
