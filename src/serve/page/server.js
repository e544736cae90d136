// Requests to the server, and what its refusals mean to a person.
import {changed, keep, storedText} from './dom.js';

// Why there is no answer. `status` is HTTP's, 0 where the server did not answer; `code` is the API's.
export class Refusal extends Error {
  constructor(status, code, message, param) {
    super(message);
    Object.assign(this, {status, code, param});
  }
}

let key = storedText('sessionStorage', 'hearth.key', '');
export const theKey = () => key;
export function setKey(value) {
  key = value;
  keep('sessionStorage', 'hearth.key', value);
}

const headers = () => ({'Content-Type': 'application/json', ...(key && {Authorization: 'Bearer ' + key})});

// fetch, where everything but success throws a Refusal.
export async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, {...options, headers: headers()});
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Refusal(0, 'unreachable', String(error.message ?? error));
  }
  if (response.ok) return response;
  const said = (await response.json().catch(() => null))?.error;
  const refusal = new Refusal(response.status, said?.code, said?.message ?? '', said?.param);
  if (response.status === 401) changed('refused', refusal);
  throw refusal;
}

// A document of the server's state. A server that says nothing for ten seconds does not answer.
export async function state(path) {
  const control = new AbortController(), timer = setTimeout(() => control.abort(), 10000);
  try {
    return await (await request(path, {signal: control.signal})).json();
  } finally {
    clearTimeout(timer);
  }
}

// Calls take(document) for every event of a stream.
export async function events(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = '';;) {
    const {done, value} = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      if (!part.startsWith('data: ')) continue;  // a comment: the answer is on its way
      const data = part.slice('data: '.length);
      if (data !== '[DONE]') take(JSON.parse(data));
    }
  }
}

const fields = {temperature: 'Temperature', top_p: 'Top p', top_k: 'Top k', min_p: 'Min p', seed: 'Seed',
                repetition_penalty: 'Repetition penalty', max_tokens: 'Longest answer'};

// {text, act}: what happened and what to do. `act` is the button that helps: 'retry', 'settings', or none.
// `context` is the model's, in tokens.
export function explain(error, context) {
  if (!(error instanceof Refusal)) {
    return {text: `The connection to the server broke off (${error.message ?? error}).`, act: 'retry'};
  }
  const {status, code, message, param} = error;
  if (code === 'unreachable') {
    return {text: 'The server does not answer. See whether \u201chearth serve\u201d still runs, then try again.',
            act: 'retry'};
  }
  if (code === 'empty') return {text: 'The model ended its answer before the first word.', act: 'retry'};
  if (status === 401) {
    return {text: theKey() ? 'The server does not know this key. Enter another one above.'
                           : 'This server wants a key. Enter it above.'};
  }
  if (code === 'context_length_exceeded') {
    const size = context ? ` (${context.toLocaleString('en')} tokens)` : '';
    return {text: `Your message is longer than the model\u2019s context${size}. Shorten it, or start the server ` +
                  'with a larger --ctx.'};
  }
  if (/chat template|chat format/.test(message)) {
    return {text: 'This model was not made for conversations: its file says nothing of how to chat with it. ' +
                  'Start the server with --chat-format, or with a model whose name ends in \u201cinstruct\u201d ' +
                  'or \u201cchat\u201d.'};
  }
  if (param in fields) {
    return {text: `The server refuses \u201c${fields[param]}\u201d: ${message}`, act: 'settings'};
  }
  if (status === 429) return {text: 'The server is busy with others. Try again in a moment.', act: 'retry'};
  if (code === 'stopping') return {text: 'The server is shutting down.', act: 'retry'};
  if (code === 'model_fault') {
    return {text: `The model\u2019s file could not be read: ${message}. Check the disk, then try again.`,
            act: 'retry'};
  }
  if (status >= 500) return {text: message || `The server failed (status ${status}).`, act: 'retry'};
  return {text: message || `The server refuses this (status ${status}).`};
}
