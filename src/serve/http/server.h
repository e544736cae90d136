// The HTTP server: listens, keeps connections within limits, stops in good order.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hearth/hearth.hpp"
#include "serve/models/model_source.h"

namespace hearth::serve {

class AccessLog;

// What one client may take.
struct ServerLimits {
  size_t header_bytes = size_t{16} << 10;
  size_t body_bytes = size_t{4} << 20;
  size_t unsent_bytes = size_t{256} << 10;    // of a stream that its client does not read
  size_t held_bytes = size_t{24} << 20;       // of all clients: bodies, and answers but streams
  int connections = 2048;                     // half of them of one address
  std::chrono::milliseconds idle{60'000};     // between requests
  std::chrono::milliseconds request{30'000};  // from a request's first byte to its last
  std::chrono::milliseconds silence{10'000};  // in a stream, before a comment says that it goes on
  std::chrono::milliseconds write{30'000};    // for a client to take some more of the answer
  std::chrono::milliseconds wrong_key{500};   // before it is answered
};

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address, or "localhost"
  uint16_t port = 8080;            // 0: a free one
  std::vector<std::string> keys;
  // Although others can reach the address, or, of this machine's own, under whatever name.
  bool allow_no_key = false;
  std::chrono::seconds grace{30};          // for running requests when the server is told to stop
  std::chrono::milliseconds save_time{0};  // of it, what is left for saving sessions afterwards
  std::string model_name;                  // as ServiceOptions
  bool strict_model = false;               // likewise
  bool lenient = false;                    // as ServiceOptions
  std::vector<std::string> cors;           // as GateOptions
  ServerLimits limits;
  AccessLog* access_log = nullptr;  // of requests that were answered; outlives the server
  // Told what the system withholds, as a sentence.
  std::function<void(const std::string& sentence)> warn;
};

// The keys of a file, one a line; empty lines and those that begin with '#' are skipped. Throws
// hearth::Error where it cannot be read or holds none, or one that no header can carry.
std::vector<std::string> ReadKeys(const std::string& path);

// Whether others can reach it though no key is asked for, which Serve refuses. Throws
// hearth::Error(kInvalidArgument) for a host that is not an address.
bool IsOpenToAll(const ServerOptions& options);

// Throws hearth::Error where the address cannot be listened on just now: to be asked before a model
// is loaded for it.
void CheckAddress(const ServerOptions& options);

// Serves until SIGTERM, SIGINT or SIGHUP; then running requests may finish within the grace, new
// ones and those that have not finished by then get 503, and it returns when the grace will be
// over. A second signal ends it at once. on_listening is told the port. Throws hearth::Error where
// the address cannot be listened on.
std::chrono::steady_clock::time_point Serve(api::Model& model, const ServerOptions& options,
                                            const std::function<void(uint16_t port)>& on_listening);

// The same with models that are loaded when they are asked for, and closed before it returns;
// on_listening is called once the default model is loaded. tell: as SeveralModels. Throws
// api::Error where the default model cannot be loaded.
void Serve(ModelSource& source, const SharingOptions& sharing, const ServerOptions& options,
           const std::function<void(uint16_t port)>& on_listening,
           const std::function<void(const std::string& sentence)>& tell);

}  // namespace hearth::serve
