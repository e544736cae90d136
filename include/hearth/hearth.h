/* Hearth as a C library. Start here:
 *
 *   hearth_model* model = NULL;
 *   hearth_error error;
 *   if (hearth_load("model.gguf", NULL, &model, &error) != HEARTH_OK) puts(error.message);
 *
 * examples/story.c is a whole program. C++ programs: hearth.hpp.
 *
 * Functions that can fail return a hearth_status and write the reason to `error`, which may be
 * NULL; counts and results are 0 then. A handle or array that is NULL and must not be is
 * HEARTH_INVALID_ARGUMENT; functions without a status do nothing then, and return 0. Texts are
 * UTF-8. A model may be used from any thread, and several requests at once are computed together; a
 * session by one thread at a time. Nothing aborts or prints.
 *
 * Structs that begin with struct_size may grow: set all of them to zero, then struct_size to their
 * sizeof. Zero and NULL are the defaults. Other structs stay as they are.
 */
#ifndef HEARTH_HEARTH_H_
#define HEARTH_HEARTH_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hearth_status {
  HEARTH_OK = 0,
  HEARTH_INVALID_ARGUMENT = 1, /* the caller asked for something that makes no sense */
  HEARTH_NOT_FOUND = 2,        /* a file is missing */
  HEARTH_IO = 3,               /* the system refused or failed, or the model's file changed */
  HEARTH_CORRUPT = 4,          /* a file contradicts itself or its format */
  HEARTH_UNSUPPORTED = 5,      /* well-formed, but nothing here can do it */
  HEARTH_OUT_OF_BUDGET = 6,    /* would exceed the memory limit */
  HEARTH_CONTEXT_FULL = 7,     /* more tokens than the context holds */
  HEARTH_CANCELLED = 8,        /* the model is being freed */
  HEARTH_BUSY = 9,             /* too many requests wait already */
  HEARTH_INTERNAL = 10,        /* a bug in Hearth */
  HEARTH_TOO_SMALL = 11        /* the buffer is; the count says what would do */
} hearth_status;

typedef struct hearth_error {
  hearth_status status;
  char message[512]; /* one sentence, cut where it is longer */
} hearth_error;

typedef struct hearth_model hearth_model;
typedef struct hearth_session hearth_session;

typedef struct hearth_options {
  uint64_t memory_bytes; /* most memory to use; 0: what is free, less a margin */
  int64_t context;       /* tokens of a request, prompt included; 0: the model's, at most 4096 */
  const char* mode;      /* auto, dense, gated or predicted; NULL: auto */
  int32_t threads;       /* 0: one per processor */
  int32_t parallel;      /* requests that are computed together */
  int32_t queue;         /* requests that may wait beside them */
  const char* plan;      /* file of `hearth plan`, which says the first four; NULL: none */
  /* silu, gelu, gelu_erf, relu, fatrelu[:T] or drelu, of a model file that does not say it; NULL:
   * what the file says, else silu */
  const char* activation;
  /* chatml, llama-2, llama-3, mistral, zephyr or harmony; NULL: the model's own template */
  const char* chat_format;
} hearth_options;

/* The defaults: nothing above is 0 by chance. */
void hearth_options_init(hearth_options* options);

/* options may be NULL. *model is the caller's, to be given to hearth_free. */
hearth_status hearth_load(const char* path, const hearth_options* options, hearth_model** model,
                          hearth_error* error);

/* A low-rank adapter (LoRA) to be loaded beside a model. */
typedef struct hearth_adapter {
  const char* path; /* a GGUF file, a folder as PEFT writes it, or its adapter_model.safetensors */
  float scale;      /* how much of it is added to questions that choose no adapters; 0: nothing */
} hearth_adapter;

/* How much of an adapter is added, -1000 to 1000. */
typedef struct hearth_adapter_scale {
  int64_t id; /* its place in hearth_load_more's adapters, from 0 */
  float scale;
} hearth_adapter_scale;

/* How weights that are not in memory are read while the model computes. The defaults are the
 * fastest known; others are there for experiments. NULL and 0: the default. A setting that does
 * nothing for the model, because all of it is in memory for one, is HEARTH_INVALID_ARGUMENT. */
typedef struct hearth_streaming {
  size_t struct_size;
  const char* pipeline;     /* of packed models: cluster, matrix, blocking or llmflash */
  const char* reads;        /* of a missing neuron: whole or gates-first, or pieces or
                             * gates-first-pieces, in 4 KiB each */
  const char* io;           /* auto, io_uring or pread */
  const char* cache_policy; /* lru, two-queue, s3-fifo, lfu-decay, layer-lfu, hit-density, ... */
  const char* lookahead;    /* auto, on or off */
  /* Reads that are at most so far apart are joined, at most 1 MiB; negative: none. 0: 8 KiB */
  int64_t merge_gap_bytes;
  /* Share of the memory for neurons that the most active ones keep for good, at most 1; negative:
   * none. 0: half */
  double pinned_share;
  /* Who reads neurons: shared (whichever thread has time) or own (one of the threads, which
   * computes only while nothing is to be read) */
  const char* io_thread;
} hearth_streaming;

/* What else a model may be loaded with. Functions are called from threads of the library while
 * hearth_load_with runs (on_warning also later): they must return soon, and call nothing here. */
typedef struct hearth_load_more {
  size_t struct_size;
  /* How the KV cache is stored: f16, f32, k8v8, k4v8, k8 or k4; NULL: f16 */
  const char* kv;
  const char* isa; /* kernels to use, as scalar or avx2; NULL: the best here */
  /* A folder for the KV pages of texts that leave memory, so that a text that goes on, after a
   * restart too, is not computed again; NULL: none. Only one model may use it at a time. */
  const char* session_folder;
  uint64_t session_limit_bytes; /* of its files; 0: 4 GiB */
  /* Bytes read so far, and to read in all. 0 ends the loading with HEARTH_CANCELLED. A model that
   * does not fit is read in two parts, each from 0 to its own total. */
  int (*on_progress)(uint64_t done_bytes, uint64_t total_bytes, void* user);
  /* One sentence: of session files that cannot be used, of doubts about the model's file, and of
   * memory that cannot be locked. */
  void (*on_warning)(const char* sentence, void* user);
  void* user;
  const hearth_adapter* adapters; /* held as 32-bit floats, in the ledger as "adapters" */
  size_t adapter_count;
  /* Most memory for the KV cache: the rest of long contexts lies in a file without a name in
   * kv_folder (NULL: $TMPDIR, else /var/tmp). 0: what memory_bytes leaves beside the weights. */
  uint64_t kv_memory_bytes;
  const char* kv_folder;
  /* 1: what is in memory is not swapped out, where the system allows it; else on_warning is told
   * why not. It is about the whole process. */
  int locks_memory;
  const hearth_streaming* streaming; /* NULL: the defaults */
  /* A device beside the processor for a part of the model (docs/devices.md):
   * none, a number of `hearth devices`, or auto (the first that is no processor, where it can be
   * used; on_warning says why it cannot); NULL: none. */
  const char* device;
  uint64_t device_memory_bytes; /* most memory of it; 0: 7/8 of a device's own */
  int64_t device_neurons;       /* of a packed model, of each layer; 0: as many as fit */
  /* What quantized matrices are multiplied with: i8, or f16 (floats of 11 bits; prompts take far
   * longer), which packed models refuse; NULL: i8 */
  const char* activations;
} hearth_load_more;

/* As hearth_load; more may be NULL. */
hearth_status hearth_load_with(const char* path, const hearth_options* options,
                               const hearth_load_more* more, hearth_model** model,
                               hearth_error* error);
/* Cancels what is under way, saves what is in the KV cache to the session folder, for at most about
 * so long, and waits for that. Requests are refused afterwards. hearth_free does the same, with ten
 * seconds. */
void hearth_close(hearth_model* model, int64_t most_ms_to_save);
/* Cancels what is under way, which ends with HEARTH_FINISH_CANCELLED, and waits for its end. Of the
 * model's sessions nothing may be asked afterwards but hearth_session_free. NULL is allowed. */
void hearth_free(hearth_model* model);

/* The adapters that a model was loaded with: their number, the path of one (owned by the model;
 * NULL for an index past the last) and its default scale (0 for such an index). */
size_t hearth_adapter_count(const hearth_model* model);
const char* hearth_adapter_path(const hearth_model* model, size_t index);
float hearth_adapter_default_scale(const hearth_model* model, size_t index);
/* Sets the default scales of questions that are asked later; adapters that are not listed get 0.
 * HEARTH_INVALID_ARGUMENT for an id that no adapter has, one that is listed twice, and a scale that
 * is not finite or out of range; nothing changes then. */
hearth_status hearth_set_adapter_scales(hearth_model* model, const hearth_adapter_scale* scales,
                                        size_t count, hearth_error* error);

int64_t hearth_context(const hearth_model* model);
int64_t hearth_vocab_size(const hearth_model* model);

/* What never changes while a model is loaded. Texts are the model's. */
typedef struct hearth_info {
  size_t struct_size;
  const char* path;
  const char* name;         /* of the file, without folders and ".gguf" */
  const char* architecture; /* as in the file */
  const char* mode;         /* dense, gated or predicted */
  const char* isa;          /* kernels in use */
  int32_t threads;
  int32_t parallel;
  int32_t queue;
  int64_t context;
  int64_t vocab_size;
  int64_t embedding_size;
  uint64_t memory_limit_bytes;
  int is_streamed; /* some weights are read while computing */
  int can_chat;    /* it has a chat template that is known here */
} hearth_info;
/* Set info->struct_size before. HEARTH_INVALID_ARGUMENT for a size that is none. */
hearth_status hearth_get_info(const hearth_model* model, hearth_info* info, hearth_error* error);

/* Token ids of `bytes` bytes of text. as_prompt: after the token that texts begin with. Writes at
 * most `capacity` ids, and to *count how many there are: HEARTH_TOO_SMALL where that is more. */
hearth_status hearth_tokenize(const hearth_model* model, const char* text, size_t bytes,
                              int as_prompt, int32_t* tokens, size_t capacity, size_t* count,
                              hearth_error* error);
/* As hearth_tokenize, but special tokens that are written out in the text ("<|im_end|>") are read
 * as such: never for what users write. */
hearth_status hearth_tokenize_trusted(const hearth_model* model, const char* text, size_t bytes,
                                      int as_prompt, int32_t* tokens, size_t capacity,
                                      size_t* count, hearth_error* error);
/* The text of tokens, without a closing zero; likewise. */
hearth_status hearth_detokenize(const hearth_model* model, const int32_t* tokens,
                                size_t token_count, char* text, size_t capacity, size_t* bytes,
                                hearth_error* error);

/* Copies the bytes of one token, which may be only a part of a character, as hearth_detokenize
 * copies text. */
hearth_status hearth_token_bytes(const hearth_model* model, int32_t token, char* text,
                                 size_t capacity, size_t* bytes, hearth_error* error);

/* A vector for a text: its last hidden states, pooled as the model's file says, else their mean, of
 * length 1. Writes at most `capacity` numbers, and to *count how many there are (embedding_size of
 * hearth_info): HEARTH_TOO_SMALL where that is more. Waits for its turn beside other requests.
 * HEARTH_UNSUPPORTED where the file says that the model makes none. */
hearth_status hearth_embed(hearth_model* model, const char* text, size_t bytes, float* vector,
                           size_t capacity, size_t* count, hearth_error* error);

typedef struct hearth_message {
  const char* role; /* system, user or assistant */
  const char* content;
} hearth_message;

/* A conversation as the model was trained to read it, ready for its answer; likewise. */
hearth_status hearth_encode_chat(const hearth_model* model, const hearth_message* messages,
                                 size_t message_count, int32_t* tokens, size_t capacity,
                                 size_t* count, hearth_error* error);

/* The text with that index, from 0, that answers in conversations end at even without an end token:
 * for hearth_request's stop. The model's; NULL after the last. */
const char* hearth_chat_stop(const hearth_model* model, size_t index);

typedef struct hearth_bias {
  int32_t token;
  float bias; /* added to its logit; -INFINITY: never that token */
} hearth_bias;

/* How tokens are chosen. */
typedef struct hearth_sampling {
  uint64_t seed;     /* same seed, same tokens */
  float temperature; /* 0: always the most likely token */
  float top_p;
  float min_p;
  float repetition_penalty;
  float frequency_penalty;
  float presence_penalty;
  int32_t top_k;             /* 0: all */
  int32_t repetition_window; /* -1: all */
  const hearth_bias* biases;
  size_t bias_count;
} hearth_sampling;

typedef struct hearth_request {
  int64_t max_tokens; /* at most; the context may end earlier */
  hearth_sampling sampling;
  const char* const* stop; /* texts to end at, which are not part of the answer */
  size_t stop_count;
} hearth_request;

/* 256 tokens, and the sampling of `hearth run`, with the seed 0. */
void hearth_request_init(hearth_request* request);
/* A seed for texts that are to differ each time: what the system calls random; 0 where it cannot.
 */
uint64_t hearth_random_seed(void);

typedef enum hearth_finish {
  HEARTH_FINISH_STOP = 0,   /* an end token or a stop text */
  HEARTH_FINISH_LENGTH = 1, /* max_tokens, or the end of the context */
  HEARTH_FINISH_CANCELLED = 2
} hearth_finish;

typedef struct hearth_result {
  hearth_finish finish;
  int64_t prompt_tokens;
  int64_t reused_tokens; /* of the prompt, which were in the KV cache already */
  int64_t generated_tokens;
  double wait_ms;    /* in the queue */
  double prefill_ms; /* from there to the first token */
  double decode_ms;  /* from there to the end */
} hearth_result;

/* Gets `bytes` bytes of text as they come, whole characters; 0 stops. Called on the model's thread:
 * it must return soon, and not call functions that generate or free. */
typedef int (*hearth_text_fn)(const char* text, size_t bytes, void* user);

/* A text that goes on. NULL where the system has no memory. */
hearth_session* hearth_session_new(hearth_model* model);
void hearth_session_free(hearth_session* session);

/* The tokens so far, to be given to hearth_generate by a later session; as hearth_tokenize. */
hearth_status hearth_session_tokens(const hearth_session* session, int32_t* tokens, size_t capacity,
                                    size_t* count, hearth_error* error);
/* Tokens so far, and the end cut off after `length` of them. */
int64_t hearth_session_length(const hearth_session* session);
void hearth_session_truncate(hearth_session* session, int64_t length);

/* Adds the tokens to the session, generates, and waits for the end; what comes is added too. Where
 * it fails, nothing is added. request, on_text and result may be NULL. */
hearth_status hearth_generate(hearth_session* session, const int32_t* tokens, size_t token_count,
                              const hearth_request* request, hearth_text_fn on_text, void* user,
                              hearth_result* result, hearth_error* error);
/* Ends what the session generates, within one token; from any thread. Without effect where it
 * generates nothing. */
void hearth_cancel(hearth_session* session);

/* --- Conversations with tools, answers of a schema, scores -------------------------------------
 */

/* A function that the model may ask for. The caller calls it, and says the result in a turn. */
typedef struct hearth_tool {
  const char* name;        /* 1 to 64 letters, digits, '_' and '-' */
  const char* description; /* NULL: none */
  const char* parameters;  /* a JSON Schema of an object; NULL: it takes none */
  int strict;              /* arguments keep to the schema even where no call is forced */
} hearth_tool;

/* What an assistant called. */
typedef struct hearth_tool_call {
  const char* id; /* names the call, for its result */
  const char* name;
  const char* arguments; /* JSON */
} hearth_tool_call;

typedef struct hearth_turn {
  const char* role;                   /* system, user, assistant or tool */
  const char* content;                /* NULL: nothing is said */
  const char* reasoning;              /* of an assistant: what it thought before; NULL: nothing */
  const hearth_tool_call* tool_calls; /* of an assistant */
  size_t tool_call_count;
  const char* tool_call_id; /* of a tool: the call that this is the result of */
} hearth_turn;

typedef struct hearth_chat {
  size_t struct_size;
  const hearth_turn* turns;
  size_t turn_count;
  const hearth_tool* tools;
  size_t tool_count;
  int must_call;         /* the answer is a call; its arguments keep to the schema */
  const char* function;  /* with must_call: of this function; NULL: of any */
  int one_call_at_most;  /* else an answer may have several */
  const char* variables; /* a JSON object of variables of the chat template; NULL: none */
} hearth_chat;

/* A conversation as the model was trained to read it, and how its answer is written. Immutable. */
typedef struct hearth_prompt hearth_prompt;
/* *prompt is the caller's, to be given to hearth_prompt_free, also after hearth_free. */
hearth_status hearth_prompt_new(const hearth_model* model, const hearth_chat* chat,
                                hearth_prompt** prompt, hearth_error* error);
void hearth_prompt_free(hearth_prompt* prompt);           /* NULL is allowed */
size_t hearth_prompt_length(const hearth_prompt* prompt); /* in tokens */

typedef enum hearth_part_kind {
  HEARTH_PART_TEXT = 0,
  HEARTH_PART_THOUGHT = 1,
  HEARTH_PART_CALL = 2
} hearth_part_kind;

/* A piece of an answer, until the function that gets it returns. Later versions may add members. */
typedef struct hearth_part {
  hearth_part_kind kind;
  int64_t call;     /* of a call: which one, counted from 0 */
  const char* name; /* of a call: of its function, in the call's first part; else NULL */
  const char* text; /* of a call: arguments, JSON; with a closing zero */
  size_t bytes;     /* of text */
} hearth_part;

typedef struct hearth_question {
  size_t struct_size;
  /* The whole conversation: it replaces what the session holds. */
  const hearth_prompt* prompt;
  /* Without a prompt: tokens that are added to the session, as hearth_generate adds them. */
  const int32_t* tokens;
  size_t token_count;
  /* Only documents of this JSON Schema are said ("": any JSON object); NULL: anything. */
  const char* json_schema;
  int wants_scores;   /* of every token */
  int32_t top_scores; /* likeliest tokens whose scores are told beside it, at most 1000 */
  /* Gets the answer as it comes; 0 stops. Called as a hearth_text_fn is; NULL: nobody waits. */
  int (*on_part)(const hearth_part* part, void* user);
  void* user;
  /* If chooses_adapters is 0, the model's default scales hold and the list is ignored. Otherwise
   * the answer is computed with the adapters listed; those that are not listed add nothing. */
  int chooses_adapters;
  const hearth_adapter_scale* adapters;
  size_t adapter_count;
  /* After every pass over the prompt: its tokens that are computed, those found in the KV cache
   * included, and all of them. 0 stops. Called as a hearth_text_fn is. */
  int (*on_prefill)(int64_t done_tokens, int64_t total_tokens, void* user);
} hearth_question;

/* An answer that has ended. Immutable; texts and arrays are its own, until hearth_answer_free. */
typedef struct hearth_answer hearth_answer;
/* Generates, and waits for the end. request may be NULL; the texts that the conversation's answers
 * end at need not be in it. *answer is the caller's, to be given to hearth_answer_free. Where it
 * fails, nothing is added to the session. */
hearth_status hearth_ask(hearth_session* session, const hearth_question* question,
                         const hearth_request* request, hearth_answer** answer,
                         hearth_error* error);
void hearth_answer_free(hearth_answer* answer); /* NULL is allowed */
/* NULL or 0 for an answer that is NULL, and for an index after the last. */
const char* hearth_answer_text(const hearth_answer* answer);
const char* hearth_answer_reasoning(const hearth_answer* answer);
size_t hearth_answer_call_count(const hearth_answer* answer);
const char* hearth_answer_call_name(const hearth_answer* answer, size_t index);
const char* hearth_answer_call_arguments(const hearth_answer* answer, size_t index);
/* Whether it calls something, and the arguments of the last call are whole. */
int hearth_answer_ends_in_calls(const hearth_answer* answer);
void hearth_answer_result(const hearth_answer* answer, hearth_result* result);
/* Of hearth_request's stop: the text that it ended at; "" for none. */
const char* hearth_answer_stop_text(const hearth_answer* answer);

typedef struct hearth_score {
  int32_t token;
  float logprob; /* natural logarithm of its probability, before any option of sampling */
} hearth_score;
/* Where scores were asked for: how many tokens have some, the score of one, and of the likeliest in
 * its place, in falling order. */
size_t hearth_answer_score_count(const hearth_answer* answer);
hearth_score hearth_answer_score(const hearth_answer* answer, size_t index);
const hearth_score* hearth_answer_top_scores(const hearth_answer* answer, size_t index,
                                             size_t* count);

/* Since the model was loaded. */
typedef struct hearth_stats {
  uint64_t memory_limit_bytes;
  uint64_t resident_bytes;
  int64_t running;
  int64_t waiting;
  int64_t prompt_tokens;    /* computed */
  int64_t reused_tokens;    /* of prompts, not computed again */
  int64_t generated_tokens; /* computed in decode passes */
  double prefill_seconds;
  double decode_seconds;
  double hit_rate; /* share of streamed neurons that were in memory when they were wanted */
  uint64_t bytes_read;
} hearth_stats;
void hearth_get_stats(const hearth_model* model, hearth_stats* stats);
/* Calls fn for every number that is counted, the above included, by its name in `struct Stats` of
 * hearth.hpp ("kv_pages", "sessions_restored_bytes"). Later versions may have more. */
void hearth_each_count(const hearth_model* model,
                       void (*fn)(const char* name, double value, void* user), void* user);
/* Calls fn for every entry of the memory ledger. */
void hearth_each_ledger_entry(const hearth_model* model,
                              void (*fn)(const char* name, uint64_t bytes, void* user), void* user);

#ifdef __cplusplus
}
#endif

#endif /* HEARTH_HEARTH_H_ */
