// What clients ask.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace hearth::load {

// From `least` to `most`, both included.
struct Range {
  int64_t least = 1;
  int64_t most = 1;
};
// "32" or "8-64". Throws hearth::Error, naming the option.
Range ParseRange(const std::string& option, const std::string& text, int64_t least, int64_t most);

struct WorkloadOptions {
  bool is_chat = true;              // else completions
  Range tokens = {32, 32};          // to generate
  Range prompt_words = {8, 64};     // that differ from request to request
  int64_t shared_prefix_words = 0;  // that all prompts begin with
  uint64_t seed = 1;
};

// The requests of one client: the same seed and client, the same requests.
class Workload {
 public:
  Workload(const WorkloadOptions& options, int client);

  struct Request {
    std::string path;
    std::string body;  // JSON; a stream with usage at its end
  };
  Request Next();

 private:
  const WorkloadOptions options_;
  std::mt19937_64 random_;
};

}  // namespace hearth::load
