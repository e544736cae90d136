// Asking: an answer under way, and how it joins its conversation.
import {conversations, extend, runs, save} from './conversations.js';
import {changed} from './dom.js';
import {numbers} from './live.js';
import {theModel} from './models.js';
import {events, explain, Refusal, request} from './server.js';
import {parameters} from './settings.js';
import {splitThinking} from './thinking.js';

// When a conversation outgrows the context, as much of it is kept as takes this share: every further turn
// would else move the beginning again, and the model would read everything anew each time.
const KEPT_SHARE = 0.6;
// What is left free for an answer without a limit of its own, of the context.
const ANSWER_SHARE = 0.2;

// By id: {text, act, retry}: why the last question has no answer, and what asks again.
export const failures = new Map();

const length = messages => messages.reduce((sum, m) => sum + m.content.length + 16, 0);

// How many of the oldest messages to leave out so that the rest fits, as far as earlier answers tell how
// many tokens a character takes. The server has the last word.
function leaveOut(path, context, wanted) {
  const last = path.findLastIndex(m => m.usage);
  if (last < 0 || !context) return 0;
  const {usage, from: seen = 0} = path[last], from = path.findLast(m => m.from)?.from ?? 0;
  const each = (usage.prompt + usage.completion) / length(path.slice(seen, last + 1));
  const room = context - Math.min(wanted ?? context * ANSWER_SHARE, context / 2);
  if (length(path.slice(from)) * each <= room) return from;
  let first = from;
  while (first + 2 < path.length && length(path.slice(first)) * each > context * KEPT_SHARE) first += 2;
  return first;
}

function body(run) {
  const {chat, path, from} = run;
  const system = chat.system ? [{role: 'system', content: chat.system}] : [];
  const said = path.slice(from).map(m => ({role: m.role, content: splitThinking(m).text}));
  return JSON.stringify({messages: [...system, ...said], stream: true, stream_options: {include_usage: true},
                         ...(theModel() && {model: theModel()}), ...parameters()});
}
// The response to a conversation, of which the oldest turns are left out until the rest fits.
async function ask(run) {
  run.from = leaveOut(run.path, numbers.now?.model.context, parameters().max_tokens);
  for (;;) {
    try {
      return await request('/v1/chat/completions',
                           {method: 'POST', body: body(run), signal: run.control.signal});
    } catch (error) {
      if (error.code !== 'context_length_exceeded' || run.from + 2 >= run.path.length) throw error;
      run.from += 2;
    }
  }
}

// Answers `question`, or where there is none the last one of the messages that are kept: the first `kept`
// of the conversation. The answer joins it with its first word, and its question with it: templates
// refuse a conversation in which two questions follow each other.
export async function answer(chat, kept, question) {
  if (runs.has(chat.id)) return;
  const path = chat.messages.slice(0, kept);
  if (question) path.push({role: 'user', content: question});
  // The note is what a reload finds.
  const message = {role: 'assistant', content: '', note: 'not finished'};
  const run = {chat, kept, question, path, message, from: 0, control: new AbortController(),
               hasBegun: false, start: performance.now(), promptBefore: numbers.now?.tokens.prompt};
  runs.set(chat.id, run);
  failures.delete(chat.id);
  changed('list');
  changed('messages', {toEnd: true});
  let trouble = null;
  try {
    await events(await ask(run), part => take(run, part));
    if (!run.hasBegun) throw new Refusal(0, 'empty', '');
  } catch (error) {
    trouble = run.control.signal.aborted ? {text: 'stopped'} : explain(error, numbers.now?.model.context);
  }
  finish(run, trouble);
}
function take(run, part) {
  const {chat, message} = run, choice = part.choices?.[0];
  if (part.error) throw new Refusal(200, part.error.code, part.error.message, part.error.param);
  if (choice?.finish_reason) run.reason = choice.finish_reason;
  if (part.usage) message.usage = {prompt: part.usage.prompt_tokens, completion: part.usage.completion_tokens};
  const text = choice?.delta?.content ?? '', thought = choice?.delta?.reasoning_content ?? '';
  if (text === '' && thought === '') return;
  if (thought) message.thinking = (message.thinking ?? '') + thought;
  message.content += text;
  run.last = performance.now();
  if (!run.hasBegun) {
    run.hasBegun = true;
    run.first = run.last;
    if (run.from > 0) message.from = run.from;
    extend(chat, run.kept, [...(run.question ? [run.path.at(-1)] : []), message]);
    changed('list');
    if (run.question) changed('messages', {toEnd: true}); else changed('messages');
  }
  const split = splitThinking(message);
  if (split.thinking && !split.isOpen) message.thoughtMs ??= Math.round(run.last - run.first);
  changed('growing', run);
  if (run.last - (run.saved ?? -Infinity) > 2000) {
    save(chat);
    run.saved = run.last;
  }
}
// How fast it came: the first word apart, since before it the model reads the conversation.
function speed({start, first, last, message}) {
  const said = [`first word after ${((first - start) / 1000).toFixed(1)} s`], tokens = message.usage?.completion;
  if (tokens > 1 && last > first) {
    said.push(`${((tokens - 1) * 1000 / (last - first)).toFixed(1)} tokens per second`);
  }
  if (tokens) said.push(`${tokens} token${tokens === 1 ? '' : 's'}`);
  return said;
}
function finish(run, trouble) {
  const {chat, message, kept, question} = run;
  runs.delete(chat.id);
  if (!conversations().includes(chat)) return;  // deleted meanwhile
  if (run.hasBegun) {
    const said = trouble ? [trouble.text] : speed(run);
    if (run.reason === 'length') {
      message.isCut = true;
      const isLimit = message.usage && message.usage.completion === parameters().max_tokens;
      said.push(isLimit ? 'cut at the longest answer you allow' : 'cut: the context is full');
    }
    message.note = said.join(' \u00b7 ');
    save(chat);
  } else {
    failures.set(chat.id, {...trouble, retry: {kept, question}});
  }
  changed('list');
  changed('settled', run);
}
// Asks again what failed.
export function retry(chat) {
  const failure = failures.get(chat.id);
  if (failure) answer(chat, failure.retry.kept, failure.retry.question);
}
export const stop = id => runs.get(id)?.control.abort();

// What the reader of a growing answer may want to know before its first word.
export function waiting(run) {
  const seconds = Math.floor((performance.now() - run.start) / 1000), {now} = numbers;
  if (seconds < 2) return 'waiting for the first word';
  if (now?.requests.waiting > 0 && now.requests.running >= now.requests.parallel) {
    return `waiting for others to finish \u00b7 ${seconds} s`;
  }
  const read = now?.requests.running === 1 ? now.tokens.prompt - run.promptBefore : 0;
  return read > 0 ? `reading the conversation: ${read.toLocaleString('en')} tokens \u00b7 ${seconds} s`
                  : `waiting for the first word \u00b7 ${seconds} s`;
}
