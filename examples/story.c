/* Continues a text: story MODEL.gguf "Once upon a time".
 *
 *   cc story.c $(pkg-config --cflags --libs hearth) -o story
 */
#include <hearth/hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print(const char* text, size_t bytes, void* user) {
  (void)user;
  fwrite(text, 1, bytes, stdout);
  fflush(stdout);
  return 1; /* go on */
}

static int fail(const hearth_error* error) {
  fprintf(stderr, "story: %s\n", error->message);
  return 1;
}

/* The tokens of a text, to be freed; NULL where that fails. */
static int32_t* tokens_of(const hearth_model* model, const char* text, size_t* count,
                          hearth_error* error) {
  int32_t* tokens = NULL;
  size_t room = 0;
  while (hearth_tokenize(model, text, strlen(text), 1, tokens, room, count, error) != HEARTH_OK) {
    if (error->status != HEARTH_TOO_SMALL) {
      free(tokens);
      return NULL;
    }
    room = *count;
    free(tokens);
    tokens = malloc(room * sizeof(*tokens));
    if (tokens == NULL) return NULL;
  }
  return tokens;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: story MODEL.gguf TEXT\n");
    return 2;
  }
  hearth_error error;
  hearth_model* model = NULL;
  hearth_options options;
  hearth_options_init(&options);
  options.parallel = 1;
  if (hearth_load(argv[1], &options, &model, &error) != HEARTH_OK) return fail(&error);

  size_t count = 0;
  int32_t* tokens = tokens_of(model, argv[2], &count, &error);
  hearth_session* session = hearth_session_new(model);
  hearth_result result;
  int code = 1;
  if (tokens != NULL && session != NULL) {
    hearth_request request;
    hearth_request_init(&request);
    request.max_tokens = 120;
    request.sampling.seed = 1;
    printf("%s", argv[2]);
    code = hearth_generate(session, tokens, count, &request, print, NULL, &result, &error) !=
           HEARTH_OK;
  }
  if (code != 0) {
    fail(&error);
  } else {
    fprintf(stderr, "\n(%lld tokens, %.0f per second)\n", (long long)result.generated_tokens,
            result.decode_ms > 0 ? 1000.0 * (double)(result.generated_tokens - 1) / result.decode_ms
                                 : 0.0);
  }
  hearth_session_free(session);
  free(tokens);
  hearth_free(model);
  return code;
}
