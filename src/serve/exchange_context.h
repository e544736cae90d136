// What requests under way share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "hearth/hearth.hpp"
#include "serve/allowance.h"
#include "serve/metrics.h"

namespace hearth::serve {

// Runs a function on a certain thread, from any thread.
using PostFn = std::function<void(std::function<void()>)>;

// Threads for requests, and how many parts of requests they are busy with. Its functions are the
// server's thread's; it outlives what is under way.
struct WorkContext {
  PostFn post;  // on the server's thread
  PostFn work;  // on a thread beside it
  std::function<void()> on_rest =
      {};              // posted after the last part under way has ended; may be empty
  int64_t active = 0;  // parts that have not ended

  void Begin(int64_t parts = 1) { active += parts; }
  void End() {
    if (--active == 0 && on_rest) post(on_rest);
  }
};

// The same for requests of a model.
struct ExchangeContext : WorkContext {
  ExchangeContext(WorkContext context, api::Model& the_model, Metrics& the_metrics,
                  std::shared_ptr<Allowance> the_allowance)
      : WorkContext(std::move(context)),
        model(the_model),
        metrics(the_metrics),
        allowance(std::move(the_allowance)) {}

  api::Model& model;
  Metrics& metrics;
  std::shared_ptr<Allowance> allowance;
};

}  // namespace hearth::serve
