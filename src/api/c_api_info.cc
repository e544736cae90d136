// The C interface: what a model is, and what it counts.
#include <cstdint>

#include "api/c_api_support.h"

using namespace hearth::api;

namespace {

struct NamedCount {
  const char* name;
  double (*of)(const Stats& stats);
};

#define HEARTH_COUNT(name)                                                    \
  NamedCount {                                                                \
#name, [](const Stats& stats) { return static_cast<double>(stats.name); } \
  }
// The fields of struct Stats (hearth.hpp), in its order.
constexpr NamedCount kCounts[] = {HEARTH_COUNT(resident_bytes),
                                  HEARTH_COUNT(running),
                                  HEARTH_COUNT(waiting),
                                  HEARTH_COUNT(prompt_tokens),
                                  HEARTH_COUNT(reused_tokens),
                                  HEARTH_COUNT(generated_tokens),
                                  HEARTH_COUNT(prefill_passes),
                                  HEARTH_COUNT(decode_passes),
                                  HEARTH_COUNT(failed_passes),
                                  HEARTH_COUNT(prefill_seconds),
                                  HEARTH_COUNT(decode_seconds),
                                  HEARTH_COUNT(kv_pages),
                                  HEARTH_COUNT(kv_pages_free),
                                  HEARTH_COUNT(kv_pages_promised),
                                  HEARTH_COUNT(kv_pages_on_flash),
                                  HEARTH_COUNT(neurons),
                                  HEARTH_COUNT(neurons_pinned),
                                  HEARTH_COUNT(neurons_cached),
                                  HEARTH_COUNT(neurons_read),
                                  HEARTH_COUNT(decode_reads),
                                  HEARTH_COUNT(decode_bytes_read),
                                  HEARTH_COUNT(bytes_read),
                                  HEARTH_COUNT(sessions),
                                  HEARTH_COUNT(session_bytes),
                                  HEARTH_COUNT(sessions_saved),
                                  HEARTH_COUNT(sessions_saved_bytes),
                                  HEARTH_COUNT(sessions_restored),
                                  HEARTH_COUNT(sessions_restored_bytes),
                                  HEARTH_COUNT(sessions_restored_tokens),
                                  HEARTH_COUNT(sessions_evicted),
                                  HEARTH_COUNT(sessions_evicted_bytes),
                                  HEARTH_COUNT(sessions_failed)};
#undef HEARTH_COUNT

}  // namespace

extern "C" {

hearth_status hearth_get_info(const hearth_model* model, hearth_info* info, hearth_error* error) {
  return Guarded(error, [&] {
    Require(model != nullptr && info != nullptr, "a model and a place for the answer are needed");
    const ModelInfo& from = model->model.info();
    CopyGrown({.struct_size = 0,
               .path = from.path.c_str(),
               .name = from.name.c_str(),
               .architecture = from.architecture.c_str(),
               .mode = from.mode.c_str(),
               .isa = from.instruction_set.c_str(),
               .threads = from.threads,
               .parallel = from.parallel,
               .queue = from.queue,
               .context = from.context,
               .vocab_size = from.vocab_size,
               .embedding_size = from.embedding_size,
               .memory_limit_bytes = from.memory_limit_bytes,
               .is_streamed = from.is_streamed ? 1 : 0,
               .can_chat = from.can_chat ? 1 : 0},
              info);
    return HEARTH_OK;
  });
}

uint64_t hearth_random_seed(void) {
  uint64_t seed = 0;
  Quietly([&] { seed = RandomSeed(); });
  return seed;
}

void hearth_each_count(const hearth_model* model,
                       void (*fn)(const char* name, double value, void* user), void* user) {
  if (model == nullptr || fn == nullptr) return;
  Quietly([&] {
    const Stats stats = model->model.stats();
    for (const NamedCount& count : kCounts) fn(count.name, count.of(stats), user);
    fn("hit_rate", stats.hit_rate(), user);
    fn("memory_limit_bytes", static_cast<double>(model->model.info().memory_limit_bytes), user);
  });
}

}  // extern "C"
