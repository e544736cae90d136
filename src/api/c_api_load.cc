// The C interface: loading with more than hearth_options says.
#include <algorithm>
#include <chrono>
#include <string>

#include "api/c_api_support.h"

using namespace hearth::api;

namespace {

Streaming ToStreaming(const hearth_streaming& from) {
  Streaming to = {.pipeline = TextOr(from.pipeline, ""),
                  .reads = TextOr(from.reads, ""),
                  .io = TextOr(from.io, ""),
                  .io_thread = TextOr(from.io_thread, ""),
                  .cache_policy = TextOr(from.cache_policy, ""),
                  .lookahead = TextOr(from.lookahead, ""),
                  .merge_gap_bytes = {},
                  .pinned_share = {}};
  if (from.merge_gap_bytes != 0) to.merge_gap_bytes = from.merge_gap_bytes;
  if (from.pinned_share != 0) to.pinned_share = from.pinned_share < 0 ? 0 : from.pinned_share;
  return to;
}

LoadOptions ToOptions(const hearth_options* options, const hearth_load_more& more) {
  hearth_options given;
  hearth_options_init(&given);
  if (options != nullptr) given = *options;
  LoadOptions to = hearth::api::ToOptions(given);
  if (more.kv != nullptr) to.kv = more.kv;
  to.kv_memory_bytes = more.kv_memory_bytes;
  to.kv_folder = TextOr(more.kv_folder, "");
  to.activations = TextOr(more.activations, "i8");
  if (more.isa != nullptr) to.isa = more.isa;
  to.locks_memory = more.locks_memory != 0;
  if (more.streaming != nullptr) to.streaming = ToStreaming(Grown(*more.streaming));
  to.device = TextOr(more.device, "none");
  to.device_memory_bytes = more.device_memory_bytes;
  to.device_neurons = more.device_neurons;
  to.session_folder = TextOr(more.session_folder, "");
  if (more.session_limit_bytes > 0) to.session_limit_bytes = more.session_limit_bytes;
  for (const hearth_adapter& adapter :
       Array(more.adapters, more.adapter_count, "adapters are missing")) {
    Require(adapter.path != nullptr, "an adapter needs a path");
    to.adapters.push_back({adapter.path, adapter.scale});
  }
  if (more.on_progress != nullptr) {
    to.on_progress = [more](uint64_t done, uint64_t total) {
      if (more.on_progress(done, total, more.user) != 0) return;
      throw Error(ErrorCode::kCancelled, "the caller ended the loading");
    };
  }
  if (more.on_warning != nullptr) {
    to.on_warning = [more](const std::string& sentence) {
      more.on_warning(sentence.c_str(), more.user);
    };
  }
  return to;
}

}  // namespace

std::vector<AdapterScale> hearth::api::ToScales(const hearth_adapter_scale* scales, size_t count) {
  std::vector<AdapterScale> to;
  for (const hearth_adapter_scale& scale : Array(scales, count, "adapters' scales are missing")) {
    to.push_back({scale.id, scale.scale});
  }
  return to;
}

extern "C" {

hearth_status hearth_load_with(const char* path, const hearth_options* options,
                               const hearth_load_more* more, hearth_model** model,
                               hearth_error* error) {
  Clear(model);
  return Guarded(error, [&] {
    Require(path != nullptr && model != nullptr, "a path and a place for the model are needed");
    const hearth_load_more all = more != nullptr ? Grown(*more) : hearth_load_more{};
    *model = new hearth_model{Model::Load(path, ToOptions(options, all))};
    return HEARTH_OK;
  });
}

size_t hearth_adapter_count(const hearth_model* model) {
  return model != nullptr ? model->model.info().adapters.size() : 0;
}

const char* hearth_adapter_path(const hearth_model* model, size_t index) {
  return index < hearth_adapter_count(model) ? model->model.info().adapters[index].c_str()
                                             : nullptr;
}

float hearth_adapter_default_scale(const hearth_model* model, size_t index) {
  float scale = 0;
  if (index >= hearth_adapter_count(model)) return scale;
  Quietly([&] { scale = model->model.adapters()[index].scale; });
  return scale;
}

hearth_status hearth_set_adapter_scales(hearth_model* model, const hearth_adapter_scale* scales,
                                        size_t count, hearth_error* error) {
  return Guarded(error, [&] {
    Require(model != nullptr, "a model is needed");
    model->model.SetAdapterScales(ToScales(scales, count));
    return HEARTH_OK;
  });
}

void hearth_close(hearth_model* model, int64_t most_ms_to_save) {
  if (model == nullptr) return;
  Quietly([&] {
    model->model.Close(std::chrono::milliseconds(std::max<int64_t>(most_ms_to_save, 0)));
  });
}

hearth_status hearth_session_tokens(const hearth_session* session, int32_t* tokens, size_t capacity,
                                    size_t* count, hearth_error* error) {
  Clear(count);
  return Guarded(error, [&] {
    Require(session != nullptr, "a session is needed");
    return CopyOut(session->session.history(), tokens, capacity, count);
  });
}

}  // extern "C"
