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

// Where each of several models keeps its sessions, in a folder of its own; says where that is.
// Nothing where none are kept, and, with a warning, where nobody says where.
std::optional<SessionRoot> SessionRootOf(const SessionArguments& arguments);
// Opens the folder of a model below it; null, with a warning, where it cannot be used.
std::unique_ptr<SessionKeeper> OpenSessionsOf(Engine& engine, const SessionRoot& root);

// --session-dir and --session-limit. `arguments` must outlive `command`.
void AddSessionOptions(CLI::App& command, SessionArguments& arguments);

// Opens the folder and says where it is. Returns null where nothing is to be kept, and, with one
// warning, where the user named no folder and the usual one cannot be used: it cannot be made, or
// another server of this model has it. Throws what OpenSessions throws for a folder that the user
// named.
std::unique_ptr<SessionKeeper> OpenServerSessions(Engine& engine,
                                                  const SessionArguments& arguments);

}  // namespace hearth::cli
