// What `hearth bench --profile` adds: the time of every op of a pass against the least that its
// bytes and multiply-adds could take.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "measure/bench.h"

namespace hearth::cli {

// "profile" of the bench document.
nlohmann::ordered_json ProfileJson(const BenchResult& result);

// A table per measure, times per token. The last length of a prompt stands for the others.
std::string ProfileText(const BenchResult& result);

}  // namespace hearth::cli
