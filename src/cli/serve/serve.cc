// hearth serve: a model, or a folder of them, behind the OpenAI API.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "api/model_impl.h"
#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/help_format.h"
#include "cli/models/find_model.h"
#include "cli/options/model_options.h"
#include "cli/options/option_values.h"
#include "cli/plan/settle_plan.h"
#include "cli/screen/output.h"
#include "cli/screen/report.h"
#include "cli/serve/folder_models.h"
#include "cli/serve/service_manager.h"
#include "cli/serve/session_options.h"
#include "engine/load/engine_plan.h"
#include "serve/http/access_log.h"
#include "serve/http/cors.h"
#include "serve/http/server.h"

namespace hearth::cli {
namespace {

// Connections, requests being parsed, grammars of schemas, and candidates for the next token of
// every request.
constexpr uint64_t kServerBytes = uint64_t{32} << 20;
// Of the grace, one part in so many is kept for saving sessions, but not more than this.
constexpr int kSaveShare = 4;
constexpr std::chrono::milliseconds kMostSaveTime{10'000};

struct ServeArguments {
  ModelOptions model;
  serve::ServerOptions server;
  std::optional<ChatFormat> chat_format;  // nothing: the model's own template
  std::string key_file;
  int parallel = 8;
  int queue = 64;
  int64_t grace_seconds = 30;
  SessionArguments sessions;
  std::string folder;  // of models that are loaded on demand; empty: there is one model
  std::optional<int64_t> unload_after_seconds;
  std::string given_for_one;  // an option about one model's files; empty: none was given
  bool verbose = false;
};

// Anybody who can read the keys can use the server.
void WarnOfReaders(const std::string& key_file) {
  using std::filesystem::perms;
  std::error_code ignored;
  const perms of_others = std::filesystem::status(key_file, ignored).permissions() &
                          (perms::group_read | perms::others_read);
  if (of_others == perms::none) return;
  PrintSentence(fmt::format("warning: other users can read the keys in {}: chmod 600 it",
                            Printable(key_file)));
}

void CheckUsage(const ServeArguments& arguments) {
  if (!arguments.sessions.are_kept() && arguments.sessions.limit_bytes) {
    throw UsageError("--session-limit has no effect with --session-dir none");
  }
  if (arguments.folder.empty()) {
    if (arguments.model.model.empty()) throw UsageError("say which MODEL, or a folder of --models");
    if (arguments.unload_after_seconds) {
      throw UsageError("--unload-after has no effect without --models");
    }
  } else if (!arguments.given_for_one.empty()) {
    throw UsageError(arguments.given_for_one +
                     " is about one model: it cannot be said with --models, which serves several");
  }
}

// Of the options, what both kinds of servers check before a model is loaded.
serve::ServerOptions CheckedServer(const ServeArguments& arguments) {
  serve::ServerOptions server = arguments.server;
  server.grace = std::chrono::seconds(arguments.grace_seconds);
  server.warn = [](const std::string& sentence) { PrintSentence("warning: " + sentence); };
  if (!arguments.key_file.empty()) {
    server.keys = serve::ReadKeys(arguments.key_file);
    WarnOfReaders(arguments.key_file);
  }
  AsUsage([&] {
    if (IsOpenToAll(server)) {
      throw UsageError(fmt::format(
          "--host: {} can be reached by others: give --api-key-file, or --allow-no-key to let "
          "everybody in",
          Printable(server.host)));
    }
    static_cast<void>(serve::AllowedOrigins(server.cors));
  });
  serve::CheckAddress(server);
  return server;
}

std::chrono::milliseconds SaveTime(const serve::ServerOptions& server) {
  return std::min(std::chrono::milliseconds(server.grace) / kSaveShare, kMostSaveTime);
}

// Says that what is served can be asked for.
void SayServing(const std::string& what, const std::string& host, uint16_t port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  PrintNotice(fmt::format("hearth: serving {} on http://{}:{}\n", what,
                          is_ipv6 ? "[" + host + "]" : host, port));
  TellServiceManager("READY=1");
}

void ServeOne(const ServeArguments& arguments, serve::ServerOptions server) {
  ModelOptions options = arguments.model;
  options.model = FindModel(options.model);
  options.kv_sequences = arguments.parallel;
  options.more_program_bytes = kServerBytes;
  if (arguments.sessions.are_kept()) options.more_program_bytes += SessionKeeper::kMemoryBytes;
  SettlePlan(options);
  std::unique_ptr<Engine> engine = LoadEngine(options);
  const Engine& loaded = *engine;  // the model's, soon
  if (arguments.verbose) {
    PrintNotice(EngineText(*engine, options) + "memory\n" + LedgerText(*engine));
  }
  std::unique_ptr<SessionKeeper> sessions = OpenServerSessions(*engine, arguments.sessions);
  if (sessions) server.save_time = SaveTime(server);
  api::Model model(std::make_unique<api::Model::Impl>(std::move(engine), arguments.parallel,
                                                      arguments.queue, arguments.chat_format,
                                                      std::move(sessions)));
  const auto grace_end = serve::Serve(
      model, server, [&](uint16_t port) { SayServing(options.model, server.host, port); });
  model.Close(std::chrono::duration_cast<std::chrono::milliseconds>(
      grace_end - std::chrono::steady_clock::now()));
  WriteDeviceTrace(options.device, loaded);
}

void ServeFolder(const ServeArguments& arguments, serve::ServerOptions server) {
  CheckModelOptions(arguments.model);
  FolderModels models(arguments.folder);
  const std::string& first = arguments.model.model;
  serve::SharingOptions sharing = {
      .memory_bytes = arguments.model.memory_bytes.value_or(DefaultLimitBytes()),
      .queue = arguments.queue,
      .default_model = first.empty() ? "" : models.NameOf(first)};
  if (arguments.unload_after_seconds) {
    sharing.unload_after = std::chrono::seconds(*arguments.unload_after_seconds);
  }
  FolderSettings settings = {.model = arguments.model,
                             .parallel = arguments.parallel,
                             .queue = arguments.queue,
                             .chat_format = arguments.chat_format,
                             .sessions = SessionRootOf(arguments.sessions),
                             .verbose = arguments.verbose};
  if (settings.sessions) sharing.save_time = server.save_time = SaveTime(server);
  sharing.program_bytes = ProgramBytesOfServer();
  if (sharing.program_bytes >= sharing.memory_bytes) {
    throw Error(ErrorCode::kOutOfBudget, Field{"memory"},
                fmt::format("a server of several models takes {} beside them, and may have {}",
                            FormatSize(sharing.program_bytes), FormatSize(sharing.memory_bytes)));
  }
  settings.model.memory_bytes = sharing.memory_bytes;
  settings.program_bytes = sharing.program_bytes;
  models.Use(std::move(settings));
  serve::Serve(
      models, sharing, server,
      [&](uint16_t port) {
        SayServing("the models of " + Printable(arguments.folder, 300), server.host, port);
      },
      [](const std::string& sentence) { PrintSentence(sentence); });
}

int RunServer(const ServeArguments& arguments) {
  CheckUsage(arguments);
  serve::ServerOptions server = CheckedServer(arguments);
  std::optional<serve::AccessLog> log;
  if (arguments.verbose) server.access_log = &log.emplace(STDERR_FILENO);
  if (arguments.folder.empty()) {
    ServeOne(arguments, server);
  } else {
    ServeFolder(arguments, server);
  }
  PrintNotice("hearth: stopped\n");
  return kExitDone;
}

void AddFolderOptions(CLI::App& command, ServeArguments& arguments) {
  command
      .add_option("--models", arguments.folder,
                  "serve all models of this folder, each loaded when it is asked for, within one "
                  "--memory; MODEL, if given, is loaded first")
      ->option_text("DIR")
      ->check(NotEmpty())
      ->group(kServerGroup);
  command
      .add_option("--unload-after", arguments.unload_after_seconds,
                  "of --models: seconds at rest after which a model is unloaded (only where "
                  "another one needs its memory)")
      ->option_text("S")
      ->check(WholeIn(1, int64_t{1} << 31))
      ->group(kServerGroup);
  command.get_option("MODEL")->required(false);
}

// What several models cannot have in common.
std::string GivenForOne(const CLI::App& command) {
  for (const char* name : {"--name", "--strict-model", "--activation", "--plan", "--lora",
                           "--device", "--device-memory", "--device-neurons", "--trace-device"}) {
    if (command.count(name) > 0) return name;
  }
  return "";
}

void AddServerOptions(CLI::App& command, ServeArguments& arguments) {
  const std::string group = kServerGroup;
  command.add_option("--host", arguments.server.host, "address to listen on (127.0.0.1)")
      ->option_text("ADDRESS")
      ->check(NotEmpty())
      ->group(group);
  command.add_option("--port", arguments.server.port, "port; 0: a free one (8080)")
      ->option_text("N")
      ->check(CLI::Range(0, 65535))
      ->group(group);
  command.add_option("--parallel", arguments.parallel, "requests that are computed together (8)")
      ->option_text("N")
      ->check(CLI::Range(1, api::kMostParallel))
      ->group(group);
  command
      .add_option("--queue", arguments.queue,
                  "further requests that may wait for their turn; the others get 429 (64)")
      ->option_text("N")
      ->check(CLI::Range(0, 100'000))
      ->group(group);
  command.add_option("--name", arguments.server.model_name, "what clients call the model")
      ->option_text("NAME")
      ->check(NotEmpty())
      ->group(group);
  command
      .add_option("--grace", arguments.grace_seconds,
                  "seconds that running requests have when the server is told to stop (30)")
      ->option_text("S")
      ->check(CLI::Range(int64_t{0}, int64_t{86400}))
      ->group(group);
}

void AddClientOptions(CLI::App& command, ServeArguments& arguments) {
  const std::string group = "Server";
  auto* keys = command
                   .add_option("--api-key-file", arguments.key_file,
                               "file of keys, one a line; clients must send one of them")
                   ->option_text("FILE")
                   ->check(NotEmpty())
                   ->group(group);
  command
      .add_flag("--allow-no-key", arguments.server.allow_no_key,
                "let everybody in who can reach the address, under whatever name")
      ->excludes(keys)
      ->group(group);
  command
      .add_option("--cors", arguments.server.cors,
                  "origin whose pages may use the server; * for all; may be repeated")
      ->option_text("ORIGIN")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all()
      ->check(NotEmpty())
      ->group(group);
  command
      .add_flag("--strict-model", arguments.server.strict_model,
                "refuse requests that name another model")
      ->group(group);
  command
      .add_flag("--lenient", arguments.server.lenient,
                "ignore parameters that nobody knows, rather than refuse them")
      ->group(group);
}

}  // namespace

void AddServeCommand(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ServeArguments>();
  CLI::App* command =
      app.add_subcommand("serve", "Answer requests of the OpenAI API over HTTP (docs/server.md)");
  AddModelOptions(*command, arguments->model);
  AddModeOption(*command, arguments->model);
  AddChatFormatOption(*command, arguments->chat_format);
  AddFolderOptions(*command, *arguments);
  AddServerOptions(*command, *arguments);
  AddClientOptions(*command, *arguments);
  AddSessionOptions(*command, arguments->sessions);
  command->add_flag("--verbose", arguments->verbose,
                    "also print the kernels and the memory ledger, and a line for every request");
  command->callback([arguments, command, &action] {
    arguments->given_for_one = GivenForOne(*command);
    action = [arguments] { return RunServer(*arguments); };
  });
}

}  // namespace hearth::cli
