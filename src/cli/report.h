// Parts of JSON documents and statistics that several commands print (FORMATS.md).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/engine.h"
#include "engine/session.h"

namespace hearth::cli {

// {"budget_bytes", "rss_peak_bytes", "ledger"}; budget_bytes is null where none was set.
nlohmann::ordered_json MemoryJson(const Engine& engine);

// {"tokens", "ms", "tok_s"}.
nlohmann::ordered_json PhaseJson(const PhaseTime& phase);

// The ledger as lines for --verbose.
std::string LedgerText(const Engine& engine);

// JSON text in which bytes that are no UTF-8 are replaced, so that it can always be written.
std::string DumpJson(const nlohmann::ordered_json& json);

}  // namespace hearth::cli
