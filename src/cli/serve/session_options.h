// Where `hearth serve` keeps what conversations computed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "engine/session/session_keeper.h"

namespace hearth::cli {

struct SessionArguments {
  static constexpr char kNone[] = "none";

  std::optional<std::string> folder;  // or kNone; nothing: below StateFolder()
  std::optional<uint64_t> limit_bytes;

  bool are_kept() const { return folder != kNone; }
};

// --session-dir and --session-limit. `arguments` must outlive `command`.
void AddSessionOptions(CLI::App& command, SessionArguments& arguments);

// Opens the folder and says where it is. Returns null where nothing is to be kept, and, with one
// warning, where the user named no folder and the usual one cannot be used: it cannot be made, or
// another server of this model has it. Throws what OpenSessions throws for a folder that the user
// named.
std::unique_ptr<SessionKeeper> OpenServerSessions(Engine& engine,
                                                  const SessionArguments& arguments);

}  // namespace hearth::cli
