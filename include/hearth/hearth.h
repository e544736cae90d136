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
/* Cancels what is under way, which ends with HEARTH_FINISH_CANCELLED, and waits for its end. Of the
 * model's sessions nothing may be asked afterwards but hearth_session_free. NULL is allowed. */
void hearth_free(hearth_model* model);

int64_t hearth_context(const hearth_model* model);
int64_t hearth_vocab_size(const hearth_model* model);

/* Token ids of `bytes` bytes of text. as_prompt: behind the token that texts begin with. Writes at
 * most `capacity` ids, and to *count how many there are: HEARTH_TOO_SMALL where that is more. */
hearth_status hearth_tokenize(const hearth_model* model, const char* text, size_t bytes,
                              int as_prompt, int32_t* tokens, size_t capacity, size_t* count,
                              hearth_error* error);
/* The text of tokens, without a closing zero; likewise. */
hearth_status hearth_detokenize(const hearth_model* model, const int32_t* tokens,
                                size_t token_count, char* text, size_t capacity, size_t* bytes,
                                hearth_error* error);

typedef struct hearth_message {
  const char* role; /* system, user or assistant */
  const char* content;
} hearth_message;

/* A conversation as the model was trained to read it, ready for its answer; likewise. */
hearth_status hearth_encode_chat(const hearth_model* model, const hearth_message* messages,
                                 size_t message_count, int32_t* tokens, size_t capacity,
                                 size_t* count, hearth_error* error);

/* The text with that index, from 0, that answers in conversations end at even without an end token:
 * for hearth_request's stop. The model's; NULL behind the last. */
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

/* 256 tokens, and the sampling of `hearth run`. */
void hearth_request_init(hearth_request* request);

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

/* Tokens so far, and the end cut off behind `length` of them. */
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
/* Calls fn for every entry of the memory ledger. */
void hearth_each_ledger_entry(const hearth_model* model,
                              void (*fn)(const char* name, uint64_t bytes, void* user), void* user);

#ifdef __cplusplus
}
#endif

#endif /* HEARTH_HEARTH_H_ */
