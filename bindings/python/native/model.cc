#include "model.h"

#include <pybind11/stl.h>

#include "loading.h"
#include "text.h"
#include "without_gil.h"

namespace hearth::python {
namespace {

namespace py = pybind11;

// Pairs of a path and a scale.
std::vector<api::AdapterFile> ToAdapters(const py::list& from) {
  std::vector<api::AdapterFile> adapters;
  for (const py::handle pair : from) {
    const auto [path, scale] = pair.cast<std::pair<std::string, float>>();
    adapters.push_back({path, scale});
  }
  return adapters;
}

// What is set of hearth.Streaming.
api::Streaming ToStreaming(const py::dict& from) {
  const auto word = [&](const char* name) {
    return from.contains(name) ? from[name].cast<std::string>() : std::string();
  };
  api::Streaming to = {.pipeline = word("pipeline"),
                       .reads = word("reads"),
                       .io = word("io"),
                       .io_thread = word("io_thread"),
                       .cache_policy = word("cache_policy"),
                       .lookahead = word("lookahead"),
                       .merge_gap_bytes = {},
                       .pinned_share = {}};
  if (from.contains("merge_gap")) to.merge_gap_bytes = from["merge_gap"].cast<int64_t>();
  if (from.contains("pinned")) to.pinned_share = from["pinned"].cast<double>();
  return to;
}

// Scales by the numbers of adapters.
std::vector<api::AdapterScale> ToScales(const std::map<int64_t, float>& from) {
  std::vector<api::AdapterScale> scales;
  for (const auto& [id, scale] : from) scales.push_back({id, scale});
  return scales;
}

// Options are those of hearth.Model, in a dictionary.
std::unique_ptr<NativeModel> Load(const std::string& path, const py::dict& options,
                                  const py::object& progress) {
  const auto text = [&](const char* name) { return options[name].cast<std::string>(); };
  return std::make_unique<NativeModel>(
      path,
      api::LoadOptions{.memory_bytes = options["memory"].cast<uint64_t>(),
                       .threads = options["threads"].cast<int>(),
                       .context = options["context"].cast<int64_t>(),
                       .mode = text("mode"),
                       .kv = text("kv"),
                       .kv_memory_bytes = options["kv_memory"].cast<uint64_t>(),
                       .kv_folder = text("kv_folder"),
                       .activations = text("activations"),
                       .isa = text("isa"),
                       .locks_memory = options["lock"].cast<bool>(),
                       .streaming = ToStreaming(options["streaming"]),
                       .device = text("device"),
                       .device_memory_bytes = options["device_memory"].cast<uint64_t>(),
                       .device_neurons = options["device_neurons"].cast<int64_t>(),
                       .parallel = options["parallel"].cast<int>(),
                       .queue = options["queue"].cast<int>(),
                       .plan = text("plan"),
                       .activation = text("activation"),
                       .chat_format = text("chat_format"),
                       .adapters = ToAdapters(options["adapters"]),
                       .session_folder = text("session_folder"),
                       .session_limit_bytes = options["session_limit"].cast<uint64_t>()},
      progress);
}

// Arguments are those of hearth.Sampling, in a dictionary.
api::Sampling ToSampling(const py::dict& from) {
  const auto number = [&](const char* name) { return from[name].cast<float>(); };
  const auto integer = [&](const char* name) { return from[name].cast<int32_t>(); };
  return {.temperature = number("temperature"),
          .top_k = integer("top_k"),
          .top_p = number("top_p"),
          .min_p = number("min_p"),
          .repetition_penalty = number("repetition_penalty"),
          .repetition_window = integer("repetition_window"),
          .frequency_penalty = number("frequency_penalty"),
          .presence_penalty = number("presence_penalty"),
          .logit_bias = py::dict(from["logit_bias"]).cast<std::map<api::TokenId, float>>(),
          .seed = from["seed"].cast<uint64_t>()};
}

// Options are those of hearth.Model.generate, in a dictionary.
std::unique_ptr<Stream> StartOf(const NativeModel& model, std::vector<api::TokenId> prompt,
                                const py::dict& options, const AnswerForm& form) {
  api::GenerateRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = options["max_tokens"].cast<int64_t>();
  request.sampling = ToSampling(options["sampling"]);
  request.stop = options["stop"].cast<std::vector<std::string>>();
  request.top_logprobs = options["top_logprobs"].cast<std::optional<int>>();
  request.json_schema = options["json_schema"].cast<std::optional<std::string>>();
  if (const auto adapters = options["adapters"].cast<std::optional<std::map<int64_t, float>>>()) {
    request.adapters = ToScales(*adapters);
  }
  return model.Start(std::move(request), form, options["tells_progress"].cast<bool>());
}

api::ToolOptions ToTools(const py::dict& from) {
  api::ToolOptions options = {.tools = {},
                              .must_call = from["must_call"].cast<bool>(),
                              .function = from["function"].cast<std::string>(),
                              .parallel = from["parallel"].cast<bool>()};
  for (const py::handle tool : from["tools"]) {
    options.tools.push_back({.name = tool["name"].cast<std::string>(),
                             .description = tool["description"].cast<std::string>(),
                             .parameters = tool["parameters"].cast<std::string>(),
                             .strict = tool["strict"].cast<bool>()});
  }
  return options;
}

api::ChatMessage ToMessage(const py::handle& from) {
  api::ChatMessage message = {.role = from["role"].cast<std::string>(),
                              .content = from["content"].cast<std::string>(),
                              .tool_call_id = from["tool_call_id"].cast<std::string>(),
                              .reasoning = from["reasoning_content"].cast<std::string>()};
  for (const py::handle call : from["tool_calls"]) {
    message.tool_calls.push_back({.id = call["id"].cast<std::string>(),
                                  .name = call["name"].cast<std::string>(),
                                  .arguments = call["arguments"].cast<std::string>()});
  }
  return message;
}

// (tokens, stop texts, how the answer is read)
py::tuple EncodeChatOf(const NativeModel& model, const py::list& messages, const py::dict& tools,
                       const std::string& variables) {
  std::vector<api::ChatMessage> conversation;
  for (const py::handle message : messages) conversation.push_back(ToMessage(message));
  const api::ChatPrompt prompt = model.EncodeChat(conversation, ToTools(tools), variables);
  py::list stop;
  for (const std::string& text : prompt.stop) stop.append(ToStr(text));
  return py::make_tuple(prompt.tokens, stop, AnswerForm{prompt.tools, prompt.thinking});
}

}  // namespace

NativeModel::NativeModel(const std::string& path, api::LoadOptions options,
                         const py::object& progress)
    : owner_(getpid()) {
  options.on_warning = [warnings = warnings_](const std::string& sentence) {
    const std::lock_guard lock(warnings->mutex);
    warnings->sentences.push_back(sentence);
  };
  model_ = LoadModel(path, std::move(options), progress);
}

NativeModel::~NativeModel() { Close(); }

void NativeModel::Close() {
  if (model_ == nullptr) return;
  std::shared_ptr<api::Model> model = std::move(model_);
  if (owner_ != getpid()) {
    // Its threads are in the parent: nobody could end them here.
    new std::shared_ptr<api::Model>(std::move(model));  // never freed
    return;
  }
  // Also where others wait for an answer of it: they are told that it was cancelled.
  WithoutGil([&] {
    model->Close(std::chrono::seconds(10));
    model.reset();
  });
}

std::shared_ptr<api::Model> NativeModel::Get() const {
  CheckProcess(owner_);
  if (model_ == nullptr) {
    throw api::Error(api::ErrorCode::kInvalidArgument, "the model is closed");
  }
  return model_;
}

py::list NativeModel::TakeWarnings() const {
  py::list taken;
  const std::lock_guard lock(warnings_->mutex);
  for (const std::string& sentence : std::exchange(warnings_->sentences, {})) {
    taken.append(ToStr(sentence));
  }
  return taken;
}

py::dict NativeModel::Info() const {
  const auto model = Get();
  const api::ModelInfo& info = model->info();
  py::dict result;
  result["path"] = PathToStr(info.path);
  result["name"] = PathToStr(info.name);
  result["architecture"] = info.architecture;
  result["mode"] = info.mode;
  result["instruction_set"] = info.instruction_set;
  result["threads"] = info.threads;
  result["context"] = info.context;
  result["vocab_size"] = info.vocab_size;
  result["embedding_size"] = info.embedding_size;
  result["parallel"] = info.parallel;
  result["queue"] = info.queue;
  result["memory_limit_bytes"] = info.memory_limit_bytes;
  result["is_streamed"] = info.is_streamed;
  result["can_chat"] = info.can_chat;
  return result;
}

py::dict NativeModel::Stats() const {
  const auto model = Get();
  const api::Stats stats = WithoutGil([&] { return model->stats(); });
  py::dict result;
  result["ledger"] = stats.ledger;
  result["resident_bytes"] = stats.resident_bytes;
  result["running"] = stats.running;
  result["waiting"] = stats.waiting;
  result["prompt_tokens"] = stats.prompt_tokens;
  result["reused_tokens"] = stats.reused_tokens;
  result["generated_tokens"] = stats.generated_tokens;
  result["prefill_passes"] = stats.prefill_passes;
  result["decode_passes"] = stats.decode_passes;
  result["failed_passes"] = stats.failed_passes;
  result["prefill_seconds"] = stats.prefill_seconds;
  result["decode_seconds"] = stats.decode_seconds;
  result["kv_pages"] = stats.kv_pages;
  result["kv_pages_free"] = stats.kv_pages_free;
  result["kv_pages_promised"] = stats.kv_pages_promised;
  result["kv_pages_on_flash"] = stats.kv_pages_on_flash;
  result["neurons"] = stats.neurons;
  result["neurons_pinned"] = stats.neurons_pinned;
  result["neurons_cached"] = stats.neurons_cached;
  result["neurons_read"] = stats.neurons_read;
  result["decode_reads"] = stats.decode_reads;
  result["decode_bytes_read"] = stats.decode_bytes_read;
  result["bytes_read"] = stats.bytes_read;
  result["hit_rate"] = stats.hit_rate();
  result["fault"] = ToStr(stats.fault);
  return result;
}

py::list NativeModel::Adapters() const {
  const auto model = Get();
  const auto adapters = WithoutGil([&] { return model->adapters(); });
  py::list result;
  for (const api::AdapterInfo& adapter : adapters) {
    result.append(py::make_tuple(PathToStr(adapter.path), adapter.scale));
  }
  return result;
}

void NativeModel::SetAdapters(const std::map<int64_t, float>& scales) const {
  const auto model = Get();
  WithoutGil([&] { model->SetAdapterScales(ToScales(scales)); });
}

std::vector<api::TokenId> NativeModel::Tokenize(const std::string& text, bool as_prompt) const {
  const auto model = Get();
  return WithoutGil([&] { return model->Tokenize(text, as_prompt); });
}

py::bytes NativeModel::TokenBytes(api::TokenId id) const { return Get()->TokenBytes(id); }

std::vector<api::TokenId> NativeModel::TokenizeForEmbedding(const std::string& text) const {
  const auto model = Get();
  return WithoutGil([&] { return model->TokenizeForEmbedding(text); });
}

std::string NativeModel::Detokenize(const std::vector<api::TokenId>& tokens) const {
  const auto model = Get();
  return WithoutGil([&] { return model->Detokenize(tokens); });
}

api::ChatPrompt NativeModel::EncodeChat(const std::vector<api::ChatMessage>& messages,
                                        const api::ToolOptions& tools,
                                        const std::string& variables) const {
  const auto model = Get();
  return WithoutGil([&] { return model->EncodeChat(messages, tools, variables); });
}

std::unique_ptr<Stream> NativeModel::Start(api::GenerateRequest request, const AnswerForm& form,
                                           bool tells_progress) const {
  request.tools = form.tools;
  request.thinking = form.thinking;
  const auto model = Get();
  auto mailbox = std::make_shared<Mailbox>();
  api::Ticket ticket = WithoutGil([&] {
    api::Listener listener;
    if (tells_progress) {
      listener.on_prefill = [mailbox](int64_t done, int64_t total) {
        mailbox->PutProgress(done, total);
      };
    }
    listener.on_token = [mailbox](std::string_view text, std::vector<api::ScoredToken> scores) {
      mailbox->PutText(text, std::move(scores));
    };
    listener.on_done = [mailbox](const api::Outcome& outcome) { mailbox->PutEnd(outcome); };
    return model->Start({std::move(request)}, {std::move(listener)}).front();
  });
  return std::make_unique<Stream>(std::move(mailbox), std::move(ticket), form);
}

std::vector<std::vector<float>> NativeModel::Embed(
    const std::vector<std::vector<api::TokenId>>& texts) const {
  if (texts.empty()) return {};
  const auto model = Get();
  std::vector<std::shared_ptr<Mailbox>> mailboxes;
  std::vector<api::Model::EmbeddingFn> on_done;
  for (size_t i = 0; i < texts.size(); ++i) {
    mailboxes.push_back(std::make_shared<Mailbox>());
    on_done.push_back([mailbox = mailboxes.back()](const std::vector<float>& embedding,
                                                   const api::Outcome& outcome) {
      mailbox->PutEnd(outcome, embedding);
    });
  }
  const auto tickets = WithoutGil([&] { return model->StartEmbeddings(texts, on_done); });
  const auto cancel = [&] {
    for (const api::Ticket& ticket : tickets) ticket.Cancel();
  };
  std::vector<std::vector<float>> embeddings;
  for (const auto& mailbox : mailboxes) {
    const api::Outcome& outcome = mailbox->WaitForEnd(cancel);
    if (outcome.error || outcome.finish_reason == api::FinishReason::kCancelled) {
      cancel();
      if (outcome.error) throw *outcome.error;
      throw api::Error(api::ErrorCode::kCancelled, "the model is being closed");
    }
    embeddings.push_back(mailbox->embedding());
  }
  return embeddings;
}

void BindModel(py::module_& module) {
  py::class_<NativeModel>(module, "Model")
      .def(py::init(&Load), py::arg("path"), py::arg("options"), py::arg("progress"))
      .def("close", &NativeModel::Close)
      .def_property_readonly("is_closed", &NativeModel::is_closed)
      .def("take_warnings", &NativeModel::TakeWarnings)
      .def("info", &NativeModel::Info)
      .def("stats", &NativeModel::Stats)
      .def("adapters", &NativeModel::Adapters)
      .def("set_adapters", &NativeModel::SetAdapters, py::arg("scales"))
      .def("tokenize", &NativeModel::Tokenize, py::arg("text"), py::arg("as_prompt"))
      .def("token_bytes", &NativeModel::TokenBytes, py::arg("id"))
      .def("tokenize_for_embedding", &NativeModel::TokenizeForEmbedding, py::arg("text"))
      .def("detokenize", &NativeModel::Detokenize, py::arg("tokens"))
      .def("encode_chat", &EncodeChatOf, py::arg("messages"), py::arg("tools"),
           py::arg("variables"))
      .def("start", &StartOf, py::arg("prompt"), py::arg("options"), py::arg("form"))
      .def("embed", &NativeModel::Embed, py::arg("texts"));
}

}  // namespace hearth::python
