// hearth_load: many clients of the server at once, and what they found (docs/benchmarks.md).
#include <CLI/CLI.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>

#include "base/error.h"
#include "load/client.h"
#include "load/report.h"
#include "load/watch.h"
#include "load/workload.h"

namespace hearth::load {
namespace {

namespace asio = boost::asio;

struct Arguments {
  std::string url = "http://127.0.0.1:8080";
  int clients = 32;
  double seconds = 180;
  std::optional<double> warm_up;  // nothing: a tenth
  std::string tokens = "32", prompt_words = "8-64";
  std::string kind = "chat";
  std::string key_file;
  WorkloadOptions workload;
  int64_t requests_per_connection = 0;
  int64_t timeout_seconds = 60;
  double sample_seconds = 1;
  std::optional<int> pid;
  bool json = false;
};

void AddOptions(CLI::App& app, Arguments& arguments) {
  app.add_option("--url", arguments.url, "the server (http://127.0.0.1:8080)");
  app.add_option("--clients", arguments.clients, "each asks when its last answer is there (32)")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--seconds", arguments.seconds, "how long (180)")->check(CLI::Range(0.5, 1e6));
  app.add_option("--warm-up", arguments.warm_up,
                 "seconds at the beginning that do not count (a tenth)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--kind", arguments.kind, "chat or completion (chat)")
      ->check(CLI::IsMember({"chat", "completion"}));
  app.add_option("--tokens", arguments.tokens, "most tokens of an answer, N or N-M at random (32)");
  app.add_option("--prompt-words", arguments.prompt_words,
                 "random words of a prompt, N or N-M at random (8-64)");
  app.add_option("--shared-prefix", arguments.workload.shared_prefix_words,
                 "words that all prompts begin with (0)")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--seed", arguments.workload.seed, "same seed, same requests of each client (1)");
  app.add_option("--requests-per-connection", arguments.requests_per_connection,
                 "then another is opened; 0: as many as the server lets (0)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--key-file", arguments.key_file, "file whose first line is the API key")
      ->check(CLI::ExistingFile);
  app.add_option("--timeout", arguments.timeout_seconds,
                 "seconds for anything to come, and for requests to end at the end (60)")
      ->check(CLI::Range(1, 86'400));
  app.add_option("--pid", arguments.pid, "the server's process, to watch its memory");
  app.add_option("--sample-seconds", arguments.sample_seconds,
                 "how often /metrics and the process are looked at (1)")
      ->check(CLI::Range(0.05, 3600.0));
  app.add_flag("--json", arguments.json, "print a JSON document");
}

std::string ReadKey(const std::string& path) {
  if (path.empty()) return "";
  std::ifstream file(path);
  std::string key;
  std::getline(file, key);
  while (!key.empty() && (key.back() == '\r' || key.back() == ' ')) key.pop_back();
  if (key.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "--key-file", "the first line holds no key", "a key",
                "nothing");
  }
  return key;
}

Clock::duration ToDuration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Run PrepareRun(const Arguments& arguments) {
  Run run;
  run.url = arguments.url;
  run.workload = arguments.workload;
  run.requests_per_connection = arguments.requests_per_connection;
  run.clients.resize(static_cast<size_t>(arguments.clients));
  run.seconds = arguments.seconds;
  run.warm_up_seconds = arguments.warm_up.value_or(arguments.seconds / 10);
  return run;
}

Target PrepareTarget(asio::io_context& context, const Arguments& arguments) {
  Target target;
  target.url = ParseUrl(arguments.url);
  target.key = ReadKey(arguments.key_file);
  target.timeout = std::chrono::seconds(arguments.timeout_seconds);
  target.requests_per_connection = arguments.requests_per_connection;
  target.endpoints = asio::ip::tcp::resolver(context).resolve(target.url.host, target.url.port);
  return target;
}

Run Execute(const Arguments& arguments) {
  Run run = PrepareRun(arguments);
  asio::io_context context(1);
  const Target target = PrepareTarget(context, arguments);
  Window window;
  window.start = Clock::now();
  window.begin = window.start + ToDuration(run.warm_up_seconds);
  window.end = window.start + ToDuration(run.seconds);
  size_t going = run.clients.size() + 1;
  asio::steady_timer last_call(context, window.end + target.timeout);
  asio::signal_set signals(context, SIGINT, SIGTERM);
  // The last one ends the waiting for signals and for whoever is late.
  const auto on_end = [&](const std::exception_ptr& thrown) {
    if (thrown) std::rethrow_exception(thrown);
    if (--going > 0) return;
    last_call.cancel();
    signals.cancel();
  };
  for (size_t i = 0; i < run.clients.size(); ++i) {
    asio::co_spawn(
        context,
        RunClient(target, window, Workload(run.workload, static_cast<int>(i)), run.clients[i]),
        on_end);
  }
  asio::co_spawn(context,
                 Watch(target, window,
                       std::chrono::milliseconds(static_cast<int>(arguments.sample_seconds * 1e3)),
                       arguments.pid, run.sightings),
                 on_end);
  last_call.async_wait([&](const boost::system::error_code& error) {
    if (!error) context.stop();
  });
  signals.async_wait([&](const boost::system::error_code& error, int) {
    if (error) return;
    run.seconds =
        std::min(run.seconds, std::chrono::duration<double>(Clock::now() - window.start).count());
    run.warm_up_seconds = std::min(run.warm_up_seconds, run.seconds);
    context.stop();
  });
  context.run();
  for (const ClientResult& client : run.clients) run.unfinished += client.is_asking ? 1 : 0;
  return run;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Asks a server of the OpenAI API from many clients at once, and says how fast and how evenly "
      "it answers.\nExit codes: 0 done, 1 requests failed or none was answered, 2 wrong usage.");
  AddOptions(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  Run run;
  try {
    arguments.workload.is_chat = arguments.kind == "chat";
    arguments.workload.tokens = ParseRange("--tokens", arguments.tokens, 1, 1'000'000);
    arguments.workload.prompt_words =
        ParseRange("--prompt-words", arguments.prompt_words, 1, 1'000'000);
    if (arguments.warm_up.value_or(0) >= arguments.seconds) {
      throw Error(ErrorCode::kInvalidArgument, "--warm-up", "seconds", "less than --seconds",
                  std::to_string(*arguments.warm_up));
    }
    run = Execute(arguments);
  } catch (const Error& error) {
    std::cerr << "hearth_load: " << error.what() << "\n";
    return error.code() == ErrorCode::kInvalidArgument ? 2 : 1;
  } catch (const std::exception& error) {
    std::cerr << "hearth_load: " << error.what() << "\n";
    return 1;
  }
  if (arguments.json) {
    std::cout << RunJson(run).dump(2) << "\n";
  } else {
    std::cout << RunText(run);
  }
  const ClientResult total = Total(run);
  return total.completed > 0 && total.errors.empty() ? 0 : 1;
}

}  // namespace
}  // namespace hearth::load

int main(int argc, char** argv) { return hearth::load::Main(argc, argv); }
