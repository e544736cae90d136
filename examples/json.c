/* Asks for an answer that is a JSON document, in a quarter of a GiB: json MODEL.gguf "A fox ran home.".
 *
 *   cc json.c $(pkg-config --cflags --libs hearth) -o json
 */
#include <hearth/hearth.h>
#include <stdio.h>
#include <string.h>

static const char kSchema[] =
    "{\"type\": \"object\", \"properties\": {\"animal\": {\"enum\": [\"fox\", \"bear\", \"other\"]},"
    " \"is_home\": {\"type\": \"boolean\"}}, \"required\": [\"animal\", \"is_home\"],"
    " \"additionalProperties\": false}";

static int progress(int64_t done, int64_t total, void* user) {
  (void)user;
  fprintf(stderr, "prompt: %lld of %lld tokens\n", (long long)done, (long long)total);
  return 1; /* go on */
}

static void warn(const char* sentence, void* user) {
  (void)user;
  fprintf(stderr, "json: warning: %s\n", sentence);
}

static hearth_model* load(const char* path, hearth_error* error) {
  hearth_options options;
  hearth_options_init(&options);
  options.memory_bytes = 256u << 20;
  options.context = 512;
  hearth_load_more more;
  memset(&more, 0, sizeof(more));
  more.struct_size = sizeof(more);
  more.kv = "k8v8";
  more.locks_memory = 1;
  more.on_warning = warn;
  hearth_model* model = NULL;
  hearth_load_with(path, &options, &more, &model, error);
  return model;
}

/* Prints the document. 0 where that fails. */
static int ask(hearth_model* model, const char* text, hearth_error* error) {
  const hearth_turn turn = {"user", text, NULL, NULL, 0, NULL};
  hearth_chat chat;
  memset(&chat, 0, sizeof(chat));
  chat.struct_size = sizeof(chat);
  chat.turns = &turn;
  chat.turn_count = 1;
  hearth_prompt* prompt = NULL;
  if (hearth_prompt_new(model, &chat, &prompt, error) != HEARTH_OK) return 0;
  hearth_question question;
  memset(&question, 0, sizeof(question));
  question.struct_size = sizeof(question);
  question.prompt = prompt;
  question.json_schema = kSchema;
  question.on_prefill = progress;
  hearth_request request;
  hearth_request_init(&request);
  request.sampling.seed = hearth_random_seed();
  hearth_session* session = hearth_session_new(model);
  hearth_answer* answer = NULL;
  hearth_ask(session, &question, &request, &answer, error);
  if (answer != NULL) printf("%s\n", hearth_answer_text(answer));
  const int is_good = answer != NULL;
  hearth_answer_free(answer);
  hearth_session_free(session);
  hearth_prompt_free(prompt);
  return is_good;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: json MODEL.gguf TEXT\n");
    return 2;
  }
  hearth_error error = {HEARTH_OK, ""};
  hearth_model* model = load(argv[1], &error);
  const int is_good = model != NULL && ask(model, argv[2], &error);
  if (!is_good) fprintf(stderr, "json: %s\n", error.message);
  hearth_free(model);
  return is_good ? 0 : 1;
}
