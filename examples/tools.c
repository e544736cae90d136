/* Asks a model that may look at the clock: tools MODEL.gguf "What time is it?".
 *
 *   cc tools.c $(pkg-config --cflags --libs hearth) -o tools
 */
#include <hearth/hearth.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const hearth_tool kClock = {"get_time", "Says what time it is.", NULL, 0};

static int print(const hearth_part* part, void* user) {
  (void)user;
  if (part->kind != HEARTH_PART_TEXT) return 1; /* thoughts and calls are not shown */
  fwrite(part->text, 1, part->bytes, stdout);
  fflush(stdout);
  return 1; /* go on */
}

static int progress(uint64_t done, uint64_t total, void* user) {
  (void)user;
  fprintf(stderr, "\r%3.0f%%", total > 0 ? 100.0 * (double)done / (double)total : 100.0);
  return 1; /* go on */
}

/* The answer to a conversation, to be freed; NULL where that fails. */
static hearth_answer* ask(hearth_model* model, hearth_session* session, const hearth_turn* turns,
                          size_t count, hearth_error* error) {
  hearth_chat chat;
  memset(&chat, 0, sizeof(chat));
  chat.struct_size = sizeof(chat);
  chat.turns = turns;
  chat.turn_count = count;
  chat.tools = &kClock;
  chat.tool_count = 1;
  hearth_prompt* prompt = NULL;
  if (hearth_prompt_new(model, &chat, &prompt, error) != HEARTH_OK) return NULL;
  hearth_question question;
  memset(&question, 0, sizeof(question));
  question.struct_size = sizeof(question);
  question.prompt = prompt;
  question.on_part = print;
  hearth_answer* answer = NULL;
  hearth_ask(session, &question, NULL, &answer, error);
  hearth_prompt_free(prompt);
  return answer;
}

/* Asks, calls what the model asks for once, and tells it the result. */
static int talk(hearth_model* model, hearth_session* session, const char* text,
                hearth_error* error) {
  hearth_turn turns[3];
  memset(turns, 0, sizeof(turns));
  turns[0].role = "user";
  turns[0].content = text;
  hearth_answer* answer = ask(model, session, turns, 1, error);
  if (answer == NULL || !hearth_answer_ends_in_calls(answer)) {
    hearth_answer_free(answer);
    return answer != NULL;
  }
  char now[64];
  const time_t seconds = time(NULL);
  strftime(now, sizeof(now), "%H:%M", localtime(&seconds));
  hearth_tool_call call = {"call_1", hearth_answer_call_name(answer, 0),
                           hearth_answer_call_arguments(answer, 0)};
  turns[1].role = "assistant";
  turns[1].content = hearth_answer_text(answer);
  turns[1].reasoning = hearth_answer_reasoning(answer);
  turns[1].tool_calls = &call;
  turns[1].tool_call_count = 1;
  turns[2].role = "tool";
  turns[2].content = now;
  turns[2].tool_call_id = call.id;
  hearth_answer* last = ask(model, session, turns, 3, error);
  const int is_good = last != NULL;
  hearth_answer_free(last);
  hearth_answer_free(answer);
  return is_good;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: tools MODEL.gguf TEXT\n");
    return 2;
  }
  hearth_error error = {HEARTH_OK, ""};
  hearth_load_more more;
  memset(&more, 0, sizeof(more));
  more.struct_size = sizeof(more);
  more.on_progress = progress;
  hearth_model* model = NULL;
  int is_good = hearth_load_with(argv[1], NULL, &more, &model, &error) == HEARTH_OK;
  fprintf(stderr, "\n");
  hearth_session* session = hearth_session_new(model);
  if (session != NULL) is_good = talk(model, session, argv[2], &error);
  if (!is_good) fprintf(stderr, "tools: %s\n", error.message);
  printf("\n");
  hearth_session_free(session);
  hearth_free(model);
  return is_good ? 0 : 1;
}
