// Start here: Hearth as a library.
//
//   hearth::api::Model model = hearth::api::Model::Load("model.gguf", {.memory_bytes = 4u << 30});
//   hearth::api::GenerateRequest request;
//   request.prompt = model.Tokenize("Once upon a time", true);
//   std::cout << model.Generate(request).text;
//
// A Model owns one engine within a memory limit and a thread that runs it. Requests may come from
// any thread; those that run at the same time are computed together. All functions throw
// hearth::api::Error; nothing aborts or prints.
//
// This header needs nothing but the standard library (C++20). C programs: hearth.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::api {

using TokenId = int32_t;

enum class ErrorCode {
  kInvalidArgument,  // the caller asked for something that makes no sense
  kNotFound,         // a file is missing
  kIo,               // the system refused or failed, or the model's file changed
  kCorrupt,          // a file contradicts itself or its format
  kUnsupported,      // well-formed, but nothing here can do it
  kOutOfBudget,      // would exceed the memory limit
  kContextFull,      // more tokens than the context holds
  kCancelled,        // the model is being closed, or was
  kBusy,             // too many requests wait already
  kInternal,         // a bug in Hearth
};

// "invalid_argument", "out_of_budget", ...
const char* ErrorCodeName(ErrorCode code) noexcept;

// what() is one sentence without a full stop.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& what, std::string field = "")
      : std::runtime_error(what), code_(code), field_(std::move(field)) {}
  ErrorCode code() const noexcept { return code_; }
  // The argument that it is about, as it is called here and in the HTTP API ("top_p", "prompt",
  // "messages[1].content"); empty where it is about none.
  const std::string& field() const noexcept { return field_; }

 private:
  ErrorCode code_;
  std::string field_;
};

// Requests that a model computes together, at most: each has a token in a pass.
inline constexpr int kMostParallel = 256;

// A low-rank adapter (LoRA) to be loaded beside a model: a GGUF file, a folder as PEFT writes it, or
// the adapter_model.safetensors in it.
struct AdapterFile {
  std::string path;
  float scale = 1;  // for requests that choose no adapters; 0: without it
};

// How much of an adapter is added, -1000 to 1000. id: its place in LoadOptions::adapters.
struct AdapterScale {
  int64_t id = 0;
  float scale = 1;
};

// How weights that are not in memory are read while the model computes (docs/architecture.md). The
// defaults are the fastest known: others are there for experiments. Empty and unset: the default. A
// setting that does nothing for the model, because all of it is in memory for one, is refused.
struct Streaming {
  std::string pipeline;      // of packed models: cluster, matrix, blocking or llmflash
  std::string reads;         // of a missing neuron: whole or gates-first, or pieces or
                             // gates-first-pieces, in 4 KiB each
  std::string io;            // auto, io_uring or pread
  std::string io_thread;     // who reads neurons: shared (whichever thread has time) or own (one of
                             // the threads, which computes only while nothing is to be read)
  std::string cache_policy;  // lru, two-queue, s3-fifo, lfu-decay, layer-lfu, hit-density, ...
  std::string lookahead;     // auto, on or off
  // Reads that are at most so far apart are joined, at most 1 MiB; negative: none. Unset: 8 KiB.
  std::optional<int64_t> merge_gap_bytes;
  // Share of the memory for neurons that the most active ones keep for good, 0 to 1. Unset: half.
  std::optional<double> pinned_share;

  bool operator==(const Streaming&) const = default;
};

struct LoadOptions {
  uint64_t memory_bytes = 0;  // most memory to use; 0: what is free, less a margin
  int threads = 0;            // 0: one per processor
  int64_t context = 0;        // tokens of a request, prompt included; 0: the model's, at most 4096
  std::string mode = "auto";  // or dense, gated, predicted (docs/architecture.md)
  std::string kv = "f16";     // how the KV cache is stored; or f32, k8v8, k4v8, k8, k4
  // Most memory for the KV cache: the rest of long contexts lies in a file without a name in
  // kv_folder (empty: $TMPDIR, else /var/tmp). 0: what memory_bytes leaves beside the weights.
  uint64_t kv_memory_bytes = 0;
  std::string kv_folder;
  // What quantized matrices are multiplied with: i8, or f16 (floats of 11 bits; prompts take far
  // longer), which packed models refuse.
  std::string activations = "i8";
  std::string isa = "auto";   // kernels to use, as scalar or avx2; the best here
  // What is in memory is not swapped out, where the system allows it; else on_warning is told why
  // not. It is about the whole process.
  bool locks_memory = false;
  Streaming streaming;
  // A device beside the processor for a part of the model (docs/devices.md):
  // "none", a number of `hearth devices`, or "auto": the first that is no processor, where it can be
  // used; on_warning says why it cannot.
  std::string device = "none";
  uint64_t device_memory_bytes = 0;  // most memory of it; 0: 7/8 of a device's own
  int64_t device_neurons = 0;        // of a packed model, of each layer; 0: as many as fit
  int parallel = 4;                  // requests that are computed together, 1 to kMostParallel
  int queue = 64;                    // requests that may wait beside them, at most 100000
  // File that `hearth plan` wrote for this model on this machine. It says memory_bytes, threads,
  // context, mode, kv, isa and streaming, which must be as they are by default, and what lies on a
  // device, so that of the above only `device` may be said; the model's threads keep to its
  // processors. Empty: none.
  std::string plan;
  // The FFNs' activation, of a file that does not say it: silu, gelu, gelu_erf, relu, fatrelu[:T]
  // or drelu.
  // Empty: what the file says, else silu. GGUF files that were converted from ReLU models say
  // nothing of it.
  std::string activation;
  // How chats become prompts, instead of the model's own template: chatml, llama-2, llama-3,
  // mistral, zephyr or harmony. Empty: by that template.
  std::string chat_format;
  // Held in memory as 32-bit floats, in the ledger as "adapters".
  std::vector<AdapterFile> adapters;
  // A folder for the KV pages of texts that leave memory (docs/formats/session.md), so that a
  // text that is continued, after a restart too, is not computed again; empty: none. Only
  // one model may use it at a time.
  std::string session_folder;
  uint64_t session_limit_bytes = uint64_t{4} << 30;  // of its files
  // Told, one sentence each and from any thread, of session files that cannot be used or written, of
  // a model that may have another activation than the one that it runs with, and of memory that
  // cannot be locked.
  std::function<void(const std::string& sentence)> on_warning;
  // Called while the model is loaded, from one of the threads that load it, with the bytes read so
  // far and those to read in all. A model that does not fit is read in two parts, each from 0 to its
  // own total. An exception of it ends the loading, and Load throws it.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> on_progress;
};

// How tokens are chosen. Values outside their ranges are refused with Error(kInvalidArgument).
struct Sampling {
  float temperature = 0.8f;             // 0 to 100; 0: always the most likely token
  int32_t top_k = 40;                   // keep the k most likely; 0: all
  float top_p = 0.95f;                  // keep the most likely up to this probability
  float min_p = 0.0f;                   // keep what has this share of the best one's probability
  float repetition_penalty = 1.0f;      // over recent tokens
  int32_t repetition_window = 64;       // how many of them; -1: all
  float frequency_penalty = 0.0f;       // per earlier occurrence in what was generated
  float presence_penalty = 0.0f;        // once for a token that occurred in it
  std::map<TokenId, float> logit_bias;  // added to logits; -infinity: never that token
  uint64_t seed = 0;                    // same seed, same tokens
};

// A seed for texts that are to differ each time: what the system calls random. Any thread.
uint64_t RandomSeed();

struct TokenScore {
  TokenId id = -1;
  float logprob = 0;  // natural logarithm of its probability, before any option of Sampling
};
struct ScoredToken {
  TokenScore token;
  std::vector<TokenScore> top;  // the likeliest, in falling order
};

enum class FinishReason { kStop, kLength, kCancelled };
// "stop", "length", "cancelled"
const char* FinishReasonName(FinishReason reason) noexcept;

class AnswerGrammar;
class ToolFormat;

// How a model marks what it thinks before it answers: "<think> ... </think>".
struct Thinking {
  std::string begin;
  std::string end;
  bool is_open = false;  // the prompt ends with `begin`; else an answer may begin with it
  // The marks are Harmony's: channels say what is thought, what is called and what is answered.
  bool has_channels = false;

  bool operator==(const Thinking&) const = default;
};

struct GenerateRequest {
  static constexpr int kMostTopLogprobs = 1000;

  std::vector<TokenId> prompt;
  int64_t max_tokens = 256;  // at most; the context may end earlier
  Sampling sampling;
  std::vector<std::string> stop;    // texts to end at, which are not part of the answer
  // The adapters that it is computed with; those that are not listed add nothing. Unset: the model's
  // default scales.
  std::optional<std::vector<AdapterScale>> adapters;
  // Scores of every token, and of so many of the likeliest, at most kMostTopLogprobs.
  std::optional<int> top_logprobs;
  // Only documents of this JSON Schema are generated; of an empty text: any JSON object.
  std::optional<std::string> json_schema;
  // Of ChatPrompt: the answer may, or must, call tools; json_schema is about its text then.
  std::shared_ptr<const ToolFormat> tools;
  // Of ChatPrompt: json_schema and tools constrain what follows the thoughts.
  std::optional<Thinking> thinking;
  // Of Model::MakeGrammar, made with these tools: counts instead of json_schema. Null: Start makes
  // what json_schema and tools demand.
  std::shared_ptr<const AnswerGrammar> grammar;
  // As Listener::on_prefill, where the listener has none: for Generate and Session.
  std::function<void(int64_t done_tokens, int64_t total_tokens)> on_prefill;
};

// How a request ended.
struct Outcome {
  FinishReason finish_reason = FinishReason::kLength;
  std::string stop_text;       // of GenerateRequest::stop, that it ended at; empty: at none
  std::optional<Error> error;  // what it failed of
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  // of the prompt, which were in the KV cache already
  std::vector<TokenId> generated;  // those of a stop text too, but no end token
  double wait_ms = 0;     // in the queue
  double prefill_ms = 0;  // from there to the first token
  double decode_ms = 0;   // from there to the end
};

struct GenerateResult {
  std::string text;
  std::vector<ScoredToken> scores;  // where they were asked for
  Outcome outcome;                  // without an error
};

// What a request tells, from the model's thread; must return soon and not throw: a request whose
// on_prefill or on_token throws fails. Any may be empty.
struct Listener {
  // Called after every pass over the prompt with the number of its tokens that are computed, those
  // found in the KV cache included, and of all. In the last call they are equal.
  std::function<void(int64_t done_tokens, int64_t total_tokens)> on_prefill;
  // Where it is given: once, before on_token, with the scores of the prompt's tokens but the first,
  // as GenerateRequest::top_logprobs says. All of the prompt is computed then.
  std::function<void(std::vector<ScoredToken> scores)> on_prompt;
  // Once per token: the text that it completes, whole UTF-8 characters, empty while text is held
  // back that may be the beginning of a stop text; and the scores of the tokens of that text. Once
  // more at the end where something still was held back.
  std::function<void(std::string_view text, std::vector<ScoredToken> scores)> on_token;
  std::function<void(const Outcome& outcome)> on_done;  // once, last
};

// A request under way. Copies are the same request; dropping them changes nothing.
class Ticket {
 public:
  // Ends it within one token, in its prompt too. Any thread; after the end without effect.
  void Cancel() const noexcept;

 private:
  friend class Model;
  struct State;
  std::shared_ptr<State> state_;
};

// What an assistant called.
struct ToolCall {
  std::string id;  // names the call, for its result
  std::string name;
  std::string arguments;  // JSON; may be malformed, unless it was constrained
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  std::vector<ToolCall> tool_calls = {};  // of an assistant
  std::string tool_call_id = {};          // of a tool: the call that this is the result of
  // Of an assistant: what it thought before, which some templates show.
  std::string reasoning = {};
};

// 1 to 64 letters, digits, '_' and '-'.
bool IsFunctionName(const std::string& name);

// A function that the model may ask for. The caller calls it, and says the result in a message.
struct Tool {
  std::string name;  // IsFunctionName
  std::string description;
  std::string parameters;  // a JSON Schema of an object; empty: it takes none
  bool strict = false;     // arguments keep to the schema even where no call is forced
};

struct ToolOptions {
  std::vector<Tool> tools;
  bool must_call = false;  // the answer is a call; its arguments keep to the schema
  std::string function;    // with must_call: of this function; empty: of any
  bool parallel = true;    // an answer may have several calls, but one of a named function
};

// How a model calls the tools of a request. Immutable.
class ToolFormat {
 public:
  struct Impl;  // not part of the interface
  explicit ToolFormat(std::unique_ptr<const Impl> impl);
  ~ToolFormat();
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<const Impl> impl_;
};

// What answers may be, of a JSON Schema and of tools. Immutable.
class AnswerGrammar {
 public:
  struct Impl;  // not part of the interface
  explicit AnswerGrammar(std::unique_ptr<const Impl> impl);
  ~AnswerGrammar();
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<const Impl> impl_;
};

// A piece of an answer.
struct AnswerPart {
  enum class Kind { kText, kThought, kCall };

  Kind kind = Kind::kText;
  int64_t call = 0;  // of kCall: which one, counted from 0
  std::string name;  // of kCall: of its function; in the call's first part only
  std::string text;  // of kCall: arguments, JSON
};

// Tells an answer's text from its thoughts and its calls, while it comes. The pieces in which it
// comes change nothing of the sum. One thread.
class AnswerReader {
 public:
  // Of the ChatPrompt that is answered. Without both, all of an answer is text.
  AnswerReader(const std::optional<Thinking>& thinking, std::shared_ptr<const ToolFormat> tools);
  AnswerReader(AnswerReader&&) noexcept;
  AnswerReader& operator=(AnswerReader&&) noexcept;
  ~AnswerReader();

  // What the next piece of the answer adds.
  std::vector<AnswerPart> Push(std::string_view text);
  // At the answer's end: what was held back.
  std::vector<AnswerPart> Finish();
  // It called something, and the arguments of the last call are whole.
  bool ends_in_calls() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A conversation as the model was trained to read it, ready for its answer.
struct ChatPrompt {
  std::vector<TokenId> tokens;
  std::vector<std::string> stop;  // texts that an answer ends at, even without an end token
  std::shared_ptr<const ToolFormat> tools;  // null where there are none
  std::optional<Thinking> thinking;         // nothing where an answer has no thoughts
};

// What never changes while a model is loaded.
struct ModelInfo {
  std::string path;
  std::string name;          // of the file, without folders and ".gguf"
  std::string architecture;  // as in the file
  std::string mode;          // dense, gated or predicted
  std::string instruction_set;
  int threads = 0;
  int64_t context = 0;
  int64_t vocab_size = 0;
  int64_t embedding_size = 0;
  int parallel = 0;
  int queue = 0;
  uint64_t memory_limit_bytes = 0;
  bool is_streamed = false;  // some FFNs are read while computing
  bool can_chat = false;     // it carries a chat template that is known here
  std::vector<std::string> chat_stop;  // ChatPrompt::stop of every conversation
  std::vector<std::string> adapters = {};  // paths of LoadOptions::adapters
};

// An adapter of a model, and its default scale now.
struct AdapterInfo {
  std::string path;
  float scale = 1;
  uint64_t memory_bytes = 0;
};

// What happened since the model was loaded, at the end of the last step.
struct Stats {
  std::map<std::string, uint64_t> ledger;  // bytes by name
  uint64_t resident_bytes = 0;
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t prompt_tokens = 0;     // computed
  int64_t reused_tokens = 0;     // of prompts, not computed again
  int64_t generated_tokens = 0;  // computed in decode passes
  int64_t prefill_passes = 0;
  int64_t decode_passes = 0;
  int64_t failed_passes = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  int64_t kv_pages = 0;           // of 64 tokens each
  int64_t kv_pages_free = 0;      // neither running requests nor ended ones use them
  int64_t kv_pages_promised = 0;  // to running requests
  int64_t kv_pages_on_flash = 0;  // of running and ended ones, that have left memory
  // Of streamed models: neurons (or extents of matrices) that decoding asked for, and where they
  // were; reads of prompts count in bytes_read too.
  int64_t neurons = 0;
  int64_t neurons_pinned = 0;
  int64_t neurons_cached = 0;
  int64_t neurons_read = 0;
  int64_t decode_reads = 0;
  uint64_t decode_bytes_read = 0;
  uint64_t bytes_read = 0;
  // Of the session folder.
  int64_t sessions = 0;  // files now
  uint64_t session_bytes = 0;
  int64_t sessions_saved = 0;  // so far
  uint64_t sessions_saved_bytes = 0;
  int64_t sessions_restored = 0;
  uint64_t sessions_restored_bytes = 0;
  int64_t sessions_restored_tokens = 0;
  int64_t sessions_evicted = 0;  // for want of room
  uint64_t sessions_evicted_bytes = 0;
  int64_t sessions_failed = 0;  // could not be written, or were damaged
  std::string fault;  // what the model's file failed of in the last pass; empty: nothing

  // Of what decoding asked for, the share that was in memory; 1 where nothing was asked for.
  double hit_rate() const {
    return neurons > 0 ? 1.0 - static_cast<double>(neurons_read) / static_cast<double>(neurons) : 1;
  }
};

// A small picture of the last decode pass: by layer, in columns of neighbouring neurons, how many
// were computed and where they were. A layer's neurons are numbered in the order of the file, those
// that fire most first, the FFNs of its experts one behind the other; column c holds those from
// ceil(c * neurons * experts / columns) on.
struct NeuronPicture {
  int64_t layers = 0;  // 0: the model's FFNs are matrices, of which there is no picture
  int64_t columns = 0;
  int64_t experts = 0;         // FFNs of a layer; 1 where it has one
  int64_t neurons = 0;         // of an FFN
  int64_t pinned_neurons = 0;  // the first ones of every FFN, which never leave memory
  int64_t pass = 0;            // decode passes so far, this one included; 0: none was seen yet
  int64_t tokens = 0;          // that were computed together; a neuron counts for each of them
  // [layers][columns], at most 65535 each: neurons that are pinned, that were found in the cache,
  // that were read. Where all are in memory, those that fire, as pinned ones.
  std::vector<uint16_t> pinned, cached, read;
};

// A loaded model. Movable; all functions but the destructor from any thread. The destructor cancels
// what is under way and waits for its end.
class Model {
 public:
  static Model Load(const std::string& path, const LoadOptions& options = {});
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const ModelInfo& info() const;
  Stats stats() const;
  // The newest picture. Passes are drawn while somebody asked within the last seconds, and cost
  // nothing otherwise: the first picture comes with the next pass.
  NeuronPicture WatchNeurons() const;

  // The adapters in the order of LoadOptions::adapters, with their default scales. SetAdapterScales
  // sets those of requests that are started later; adapters that it does not list get 0. It throws
  // Error(kInvalidArgument) for an id that no adapter has, one that is listed twice, and a scale
  // that is not finite or out of range; nothing changes then. A request never reuses what was
  // computed with other adapters or scales.
  std::vector<AdapterInfo> adapters() const;
  void SetAdapterScales(const std::vector<AdapterScale>& scales);

  // Token ids of a text. as_prompt: after the token that texts begin with, where the model has
  // one; that token alone for an empty text. parse_special: special tokens that are written out in
  // the text ("<|im_end|>") are read as such, that first one too; never for what users write.
  // Throws Error(kContextFull) for a prompt that is too long.
  std::vector<TokenId> Tokenize(std::string_view text, bool as_prompt = false,
                                bool parse_special = false) const;
  // Token ids of a text to be embedded: as a prompt's, and with the token that texts end with where
  // the model's embeddings are made so. Throws Error(kContextFull).
  std::vector<TokenId> TokenizeForEmbedding(std::string_view text) const;
  // Bytes that a token stands for; may be part of a UTF-8 character. Error(kInvalidArgument).
  std::string TokenBytes(TokenId id) const;
  // The text whose tokens these are, from its beginning: the other way of Tokenize. What is no UTF-8
  // becomes U+FFFD.
  std::string Detokenize(const std::vector<TokenId>& tokens) const;
  // Throws Error(kUnsupported) where the model has no chat template that is known here,
  // Error(kInvalidArgument) for a role that it does not know, Error(kContextFull). Tools are
  // described as the template does; where it knows none, in words (docs/server.md). variables: a
  // JSON object of further variables of the template ("enable_thinking"); empty: none.
  // may_hold is asked before the template takes more memory than it was granted, with what it would
  // hold in all; where that is refused, Error(kOutOfBudget). Without one it may take 64 MiB.
  ChatPrompt EncodeChat(const std::vector<ChatMessage>& messages, const ToolOptions& tools = {},
                        const std::string& variables = {},
                        const std::function<bool(size_t bytes)>& may_hold = {}) const;

  // What a request's json_schema and tools demand of its answer; null where they demand nothing. A
  // large schema takes seconds: a caller that must not wait makes it on a thread of its own. Throws
  // Error(kInvalidArgument) for what is not a schema, Error(kUnsupported) for what no grammar can say,
  // Error(kOutOfBudget) while the grammars of other requests take all memory that there is for them.
  std::shared_ptr<const AnswerGrammar> MakeGrammar(
      const std::optional<std::string>& json_schema,
      const std::shared_ptr<const ToolFormat>& tools = nullptr,
      const std::optional<Thinking>& thinking = {}) const;

  // Generates and waits for the end. on_text gets the text as it comes; false stops, an exception
  // too, which passes on. Throws what the request failed of.
  // on_start, where given, gets the ticket before any text.
  GenerateResult Generate(const GenerateRequest& request,
                          const std::function<bool(std::string_view text)>& on_text = {},
                          const std::function<void(const Ticket& ticket)>& on_start = {});

  // Starts requests that come and go together (the choices of one question), or throws: what makes
  // one impossible, or Error(kBusy) where not all of them may wait. Requests that begin alike
  // compute that beginning once. As many listeners as requests.
  std::vector<Ticket> Start(std::vector<GenerateRequest> requests, std::vector<Listener> listeners);

  // The last hidden states (after the output norm), pooled as the model's file says and scaled to
  // length 1: those of the first or last token, or the mean of all, which is also the default.
  // on_done has the vector, or why there is none; it may be empty. Throws Error(kUnsupported) where
  // the file says that it makes no embeddings.
  using EmbeddingFn =
      std::function<void(const std::vector<float>& embedding, const Outcome& outcome)>;
  std::vector<Ticket> StartEmbeddings(std::vector<std::vector<TokenId>> texts,
                                      const std::vector<EmbeddingFn>& on_done);
  std::vector<float> Embed(const std::vector<TokenId>& tokens);

  // Cancels what is under way, saves what is in the KV cache to the session folder, for at most
  // about so long, and waits for that. Requests are refused afterwards. The destructor does the
  // same, with ten seconds.
  void Close(std::chrono::milliseconds most_to_save);

  // For the rest of Hearth; not part of the interface.
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// A text that goes on: what it holds, and answers to it. What was computed before is usually found in
// the KV cache, so that an answer costs what is new. One thread at a time, but for Cancel; the model
// must outlive it.
class Session {
 public:
  explicit Session(Model& model);

  // Everything so far.
  const std::vector<TokenId>& history() const { return history_; }
  // Drops tokens from the end.
  void Truncate(int64_t length);

  // Adds the request's prompt and generates as Model::Generate does; what comes is added too, but
  // for a last token that the context has no room for. Where it throws, nothing is added.
  GenerateResult Generate(GenerateRequest request,
                          const std::function<bool(std::string_view text)>& on_text = {});
  // The same after dropping what is held: the request's prompt is the whole text. Where it throws,
  // what was held stays.
  GenerateResult Replace(GenerateRequest request,
                         const std::function<bool(std::string_view text)>& on_text = {});
  // Ends a Generate within one token; from any thread. Without effect where there is none.
  void Cancel();

 private:
  struct Current;
  Model* model_;
  std::vector<TokenId> history_;
  std::shared_ptr<Current> current_;
};

}  // namespace hearth::api
