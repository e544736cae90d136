// Budgets that are just enough.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/error.h"
#include "engine/engine.h"

namespace hearth {

// The limit in bytes that a refusal of less names.
inline uint64_t LimitOfRefusal(const std::string& words) {
  const std::string before = "the smallest that can is ";
  const size_t at = words.find(before);
  if (at == std::string::npos) {
    ADD_FAILURE() << "no limit is named: " << words;
    return 0;
  }
  return std::stoull(words.substr(at + before.size())) << 20;
}

// What budgets allow for the program. What it takes in truth changes from load to load, most of all
// under sanitizers, and with it what is left for the model.
inline constexpr uint64_t kTestProgramBytes = uint64_t{64} << 20;

// The smallest limit that a model can be loaded with.
inline uint64_t SmallestLimit(const std::string& path, EngineOptions options) {
  options.memory_bytes = 1;
  try {
    Engine::Load(path, options);
  } catch (const Error& error) {
    return LimitOfRefusal(error.what());
  }
  ADD_FAILURE() << "nothing was refused";
  return 0;
}

}  // namespace hearth
