// measure_sparsity MODEL [TOKENS [WALK]]: what the neurons of a synthesized model do over its topic
// walk (docs/synth.md), measured by running it. WALK numbers independent walks. Prints one line per
// FFN and a summary.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "engine/engine.h"
#include "measure/topic_walk.h"
#include "prepare/profile/sparsity_meter.h"

int main(int argc, char** argv) {
  using namespace hearth;
  if (argc < 2 || argc > 4) {
    fmt::print(stderr, "usage: measure_sparsity MODEL [TOKENS [WALK]]\n");
    return 2;
  }
  try {
    const int64_t count = argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 512;
    const uint64_t number = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
    const auto engine = Engine::Load(argv[1], {.context = count});
    const auto map =
        TopicMap::FromMetadata(engine->model().metadata(), engine->model().spec().vocab_size);
    if (!map) {
      fmt::print(stderr, "{}: no topics: it was not synthesized with planted sparsity\n", argv[1]);
      return 1;
    }
    const SparsityReport report = MeasureSparsity(*engine, TopicWalk(*map, number).Take(count));
    fmt::print("layer expert tokens   gate active   80% of activations in\n");
    for (const FfnSparsity& ffn : report.ffns) {
      fmt::print("{:5} {:6} {:6} {:6.4f} {:6.4f} {:6.4f} of the neurons\n", ffn.layer, ffn.expert,
                 ffn.tokens, ffn.gate, ffn.active, ffn.hot_share);
    }
    fmt::print("all: P(gate) {:.4f}, P(active) {:.4f}\n", report.gate, report.active);
    fmt::print(
        "cache of half the neurons misses, mean and P99: two queues {:.2f}% {:.2f}%, "
        "LRU {:.2f}% {:.2f}%\n",
        100 * report.two_queues.mean, 100 * report.two_queues.p99, 100 * report.lru.mean,
        100 * report.lru.p99);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
