// Conversations: kept in the browser, shared by its tabs.
//   conversation {id, title?, system?, messages}, the newest first
//   message {role, content, thinking?, thoughtMs?, note?, isCut?, usage?: {prompt, completion}, from?, fork?}
//     from: how many of the messages before it the model did not see
//     fork {tails, at}: other ways to go on from here, each a list of messages; tails[at] is null, the
//     place of the one that is shown
// Other tabs have the same; each stores only the conversations that it changes.
import {changed, keep, stored, storedText} from './dom.js';

export const troubles = {server: '', storage: ''};
// Answers under way by id of their conversation (answers.js).
export const runs = new Map();

let all = [];
let current = storedText('sessionStorage', 'hearth.current', storedText('localStorage', 'hearth.current', ''));
const known = new Set();   // ids that storage had: one that is gone from it was deleted
const unkept = new Set();  // ids of which storage lacks the newest
let deleted = null;        // what undo() brings back

export const conversations = () => all;
export const conversation = () => all.find(c => c.id === current);
export const currentId = () => current;
export const lastDeleted = () => deleted;
const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 6);

const isObject = value => typeof value === 'object' && value !== null && !Array.isArray(value);
const isCount = value => Number.isSafeInteger(value) && value >= 0;

// Storage may hold anything: an older page's, another program's, an imported file's. Returns what is
// sound of a message, or null.
function mendedMessage(m, depth) {
  if (!isObject(m) || typeof m.content !== 'string' || !['user', 'assistant'].includes(m.role)) return null;
  const {role, content} = m, clean = {role, content};
  for (const name of ['thinking', 'note']) if (typeof m[name] === 'string') clean[name] = m[name];
  for (const name of ['thoughtMs', 'from']) if (isCount(m[name])) clean[name] = m[name];
  if (m.isCut === true) clean.isCut = true;
  if (isCount(m.usage?.prompt) && isCount(m.usage?.completion)) {
    clean.usage = {prompt: m.usage.prompt, completion: m.usage.completion};
  }
  const fork = m.fork;
  if (depth < 20 && Array.isArray(fork?.tails) && fork.tails[fork.at] === null) {
    const tails = fork.tails.map((tail, i) => i === fork.at ? null : mendedPath(tail, role, depth + 1))
        .filter(tail => tail === null || tail.length > 0);
    if (tails.length > 1) clean.fork = {tails, at: tails.indexOf(null)};
  }
  return clean;
}
// Questions that have answers, with them, in turns; older pages stored others too.
function mendedPath(messages, first, depth = 0) {
  if (!Array.isArray(messages)) return [];
  const isSaid = m => m?.role === 'assistant' && Boolean(m.content || m.thinking) && m.content !== '\u2026';
  const sound = messages.map(m => mendedMessage(m, depth)).filter(Boolean);
  const answered = sound.filter((m, i) => m.role === 'user' ? isSaid(sound[i + 1]) : isSaid(m));
  const path = [];
  for (const m of answered) {
    const wanted = path.length === 0 ? first : path.at(-1).role === 'user' ? 'assistant' : 'user';
    if (m.role === wanted) path.push(m);
  }
  return path;
}
function mended(values) {
  if (!Array.isArray(values)) return [];
  const ids = new Set(), sound = [];
  for (const value of values.filter(isObject)) {
    const clean = {id: typeof value.id === 'string' && value.id ? value.id : newId(),
                   messages: mendedPath(value.messages, 'user')};
    for (const name of ['title', 'system']) if (typeof value[name] === 'string') clean[name] = value[name];
    if (clean.messages.length === 0 || ids.has(clean.id)) continue;
    ids.add(clean.id);
    sound.push(clean);
  }
  return sound;
}
const storedConversations = () => mended(stored('localStorage', 'hearth.conversations', []));

// Takes over what other tabs stored.
export function load() {
  const own = new Map(all.map(c => [c.id, c])), isOurs = id => runs.has(id) || unkept.has(id);
  const there = storedConversations().map(c => own.has(c.id) && isOurs(c.id) ? own.get(c.id) : c);
  const ids = new Set(there.map(c => c.id));
  all = [...all.filter(c => !ids.has(c.id) && !known.has(c.id)), ...there];
  for (const id of ids) known.add(id);
  for (const id of unkept) if (known.has(id) && !ids.has(id)) unkept.delete(id);
  for (const [id, run] of runs) if (!all.includes(run.chat)) run.control.abort();
}
export function save(chat) {
  const there = storedConversations(), at = there.findIndex(c => c.id === chat.id);
  if (at < 0 && known.has(chat.id)) return;  // deleted in another tab
  if (at < 0) there.unshift(chat); else there[at] = chat;
  const isKept = keep('localStorage', 'hearth.conversations', there);
  if (isKept) known.add(chat.id);
  if (isKept) unkept.delete(chat.id); else unkept.add(chat.id);
  troubles.storage = unkept.size === 0 ? '' :
      'Conversations are not kept: the browser\u2019s storage is full, or closed to this page. Export them.';
  changed('status');
}

export function open(id) {
  current = id;
  keep('sessionStorage', 'hearth.current', id);
  keep('localStorage', 'hearth.current', id);
  changed('list');
  changed('opened');
}
// Opens an empty conversation.
export function begin() {
  const isNew = c => c.messages.length === 0 && !runs.has(c.id);
  if (!all.some(isNew)) {
    const system = storedText('localStorage', 'hearth.system', '');
    all.unshift({id: newId(), messages: [], ...(system && {system})});
  }
  open(all.find(isNew).id);
}
// Opens another conversation if the one that was open is gone.
export function settle() {
  if (conversation()) changed('list');
  else if (all.length > 0) open(all[0].id);
  else begin();
}

export function titleOf(chat) {
  const text = chat.title || (chat.messages[0]?.content ?? runs.get(chat.id)?.question);
  return text?.trim().slice(0, 60) || 'New conversation';
}
export function rename(chat, title) {
  chat.title = title.trim() || undefined;
  if (chat.messages.length > 0) save(chat);
  changed('list');
}
export function setSystem(chat, text) {
  chat.system = text || undefined;
  keep('localStorage', 'hearth.system', text);
  if (chat.messages.length > 0) save(chat);
}

export function remove(id) {
  deleted = all.find(c => c.id === id);
  if (deleted.messages.length === 0) deleted = null;
  known.add(id);
  unkept.delete(id);
  keep('localStorage', 'hearth.conversations', storedConversations().filter(c => c.id !== id));
  all = all.filter(c => c.id !== id);
  runs.get(id)?.control.abort();
  settle();
}
export function undo() {
  const chat = deleted;
  deleted = null;
  add([{...chat, id: newId()}]);
}
// Adds conversations on top and opens the first of them.
function add(chats) {
  all = [...chats, ...all];
  for (const chat of [...chats].reverse()) save(chat);
  open(chats[0].id);
}

// Goes on from messages[kept] with other messages. What stood there stays as another tail.
export function extend(chat, kept, fresh) {
  const tail = chat.messages.slice(kept);
  if (tail.length > 0) {
    const fork = tail[0].fork ?? {tails: [null], at: 0};
    delete tail[0].fork;
    fork.tails[fork.at] = tail;
    fork.at = fork.tails.push(null) - 1;
    fresh[0].fork = fork;
  }
  chat.messages = [...chat.messages.slice(0, kept), ...fresh];
}
// Shows the tail that is `step` further at messages[index].
export function turn(chat, index, step) {
  const tail = chat.messages.slice(index), fork = tail[0].fork, to = fork.at + step;
  if (!fork.tails[to]) return;
  delete tail[0].fork;
  fork.tails[fork.at] = tail;
  const next = fork.tails[to];
  fork.tails[to] = null;
  fork.at = to;
  next[0].fork = fork;
  chat.messages = [...chat.messages.slice(0, index), ...next];
  save(chat);
}
// A new conversation that begins like this one, up to messages[last].
export function branch(chat, last) {
  const copy = structuredClone(chat.messages.slice(0, last + 1));
  for (const message of copy) delete message.fork;
  add([{id: newId(), title: titleOf(chat) + ' (branch)', messages: copy,
        ...(chat.system && {system: chat.system})}]);
}

export const exported = () => JSON.stringify(
    {format: 'hearth conversations', version: 1, conversations: all.filter(c => c.messages.length > 0)}, null, 1);
export function asMarkdown(chat) {
  const parts = [`# ${titleOf(chat)}`, ...(chat.system ? [`*System message:* ${chat.system}`] : [])];
  for (const {role, content} of chat.messages) parts.push(`## ${role === 'user' ? 'You' : 'Model'}`, content);
  return parts.join('\n\n') + '\n';
}
// Adds the conversations of an exported file; returns how many. Throws where it holds none.
export function importFrom(text) {
  let value;
  try { value = JSON.parse(text); } catch { throw new Error('The file is not JSON.'); }
  const chats = mended(Array.isArray(value) ? value : value?.conversations);
  if (chats.length === 0) throw new Error('The file holds no conversations.');
  const taken = new Set(all.map(c => c.id));
  for (const chat of chats) if (taken.has(chat.id) || known.has(chat.id)) chat.id = newId();
  add(chats);
  return chats.length;
}

addEventListener('storage', event => {
  // A key of null: all was cleared.
  if (event.key !== null && event.key !== 'hearth.conversations') return;
  const before = JSON.stringify(conversation());
  load();
  settle();
  if (JSON.stringify(conversation()) !== before) changed('messages');
});
