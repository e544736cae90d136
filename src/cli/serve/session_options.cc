#include "cli/serve/session_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "cli/help_format.h"
#include "cli/models/cache_folder.h"
#include "cli/options/option_values.h"
#include "cli/screen/output.h"
#include "storage/disk_space.h"

namespace hearth::cli {
namespace {

// Of a disk's free bytes, what nobody's wish may take: one part in so many.
constexpr uint64_t kDiskShare = 10;

void Warn(const std::string& sentence) { PrintSentence("warning: " + sentence); }

// 4 GiB, and less on a disk that is nearly full.
uint64_t UsualLimit(const std::string& folder) {
  const uint64_t usual = SessionRoot().limit_bytes;
  const std::optional<uint64_t> free_bytes = FreeDiskBytes(folder);
  return free_bytes ? std::min(usual, *free_bytes / kDiskShare) : usual;
}

// Nothing, with a warning, where the environment names no folder.
std::optional<SessionRoot> UsualRoot(const SessionArguments& arguments) {
  const std::string state = StateFolder();
  if (state.empty()) {
    Warn("conversations are not kept: neither XDG_STATE_HOME nor HOME names a folder");
    return std::nullopt;
  }
  const std::string folder = state + "/sessions";
  return SessionRoot{folder, arguments.limit_bytes ? *arguments.limit_bytes : UsualLimit(folder)};
}

void SayWhere(const SessionRoot& root) {
  PrintNotice(fmt::format(
      "hearth: conversations are kept in {}, at most {} (--session-dir none: nowhere)\n",
      Printable(root.folder), FormatSize(root.limit_bytes)));
}

std::unique_ptr<SessionKeeper> OpenUsual(Engine& engine, const SessionArguments& arguments) {
  const std::optional<SessionRoot> root = UsualRoot(arguments);
  if (!root) return nullptr;
  std::unique_ptr<SessionKeeper> sessions = OpenSessionsOf(engine, *root);
  if (sessions) SayWhere(*root);
  return sessions;
}

}  // namespace

std::unique_ptr<SessionKeeper> OpenSessionsOf(Engine& engine, const SessionRoot& root) {
  try {
    return OpenSessionsBelow(engine, root, engine.model().name(),
                             {.folder = "", .limit_bytes = 0, .warn = Warn});
  } catch (const Error& error) {
    Warn(std::string("conversations are not kept: ") + error.what());
    return nullptr;
  }
}

std::optional<SessionRoot> SessionRootOf(const SessionArguments& arguments) {
  if (!arguments.are_kept()) return std::nullopt;
  const std::optional<SessionRoot> root =
      arguments.folder ? SessionRoot{*arguments.folder,
                                     arguments.limit_bytes.value_or(SessionRoot().limit_bytes)}
                       : UsualRoot(arguments);
  if (root) SayWhere(*root);
  return root;
}

std::unique_ptr<SessionKeeper> OpenServerSessions(Engine& engine,
                                                  const SessionArguments& arguments) {
  if (!arguments.are_kept()) return nullptr;
  if (!arguments.folder) return OpenUsual(engine, arguments);
  return OpenSessions(
      engine, {.folder = *arguments.folder,
               .limit_bytes = arguments.limit_bytes.value_or(SessionStoreOptions().limit_bytes),
               .warn = Warn});
}

void AddSessionOptions(CLI::App& command, SessionArguments& arguments) {
  command
      .add_option(
          "--session-dir", arguments.folder,
          "folder for what conversations computed, which outlives memory and restarts; none: "
          "keep nothing (a folder for each model in ~/.local/state/hearth/sessions)")
      ->option_text("DIR|none")
      ->check(NotEmpty())
      ->group(kServerGroup);
  command
      .add_option_function<std::string>(
          "--session-limit",
          [&arguments](const std::string& size) {
            arguments.limit_bytes = AsUsage([&] { return ParseSize(size, "--session-limit"); });
            if (*arguments.limit_bytes == 0) {
              throw UsageError("--session-limit: expected more than 0");
            }
          },
          "most bytes of its files; those that were not used for longest go first (4G, or a tenth "
          "of the free disk)")
      ->option_text("SIZE")
      ->group(kServerGroup);
}

}  // namespace hearth::cli
