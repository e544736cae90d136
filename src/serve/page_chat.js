const stored = (store, name, otherwise) => {
  try { return JSON.parse(store.getItem(name)) ?? otherwise; } catch { return otherwise; }
};
const keep = (store, name, value) => { try { store.setItem(name, JSON.stringify(value)); } catch {} };

// Conversations: {id, messages: [{role, content, note}]}, the newest first.
let conversations = stored(localStorage, 'hearth.conversations', []);
let current = stored(localStorage, 'hearth.current', null);
let running = null;  // the AbortController of the answer under way

const conversation = () => conversations.find(c => c.id === current);
function save() {
  keep(localStorage, 'hearth.conversations', conversations);
  keep(localStorage, 'hearth.current', current);
}
function open(id) {
  running?.abort();
  current = id;
  save();
  showList();
  showMessages();
}
function begin() {
  const empty = conversations.find(c => c.messages.length === 0);
  if (!empty) conversations.unshift({id: Date.now().toString(36), messages: []});
  open((empty ?? conversations[0]).id);
}
function remove(id) {
  conversations = conversations.filter(c => c.id !== id);
  if (conversations.length === 0) return begin();
  open(current === id ? conversations[0].id : current);
}
function showList() {
  $('list').replaceChildren(...conversations.map(c => {
    const title = c.messages[0]?.content.slice(0, 40) || 'New conversation';
    const item = make('li'), choose = make('button', title, 'quiet');
    const drop = make('button', '\u00d7', 'quiet');
    choose.setAttribute('aria-current', c.id === current);
    choose.onclick = () => { open(c.id); view(''); };
    drop.setAttribute('aria-label', 'Delete: ' + title);
    drop.onclick = () => remove(c.id);
    item.append(choose, drop);
    return item;
  }));
}

function showMessage(message) {
  const box = make('div', undefined, 'message ' + message.role), body = make('div');
  body.dataset.body = '';
  if (message.role === 'user') body.append(make('p', message.content));
  else markdown(message.content, body);
  box.append(body);
  if (message.note) box.append(make('div', message.note, 'note'));
  return box;
}
function showMessages() {
  const messages = conversation()?.messages ?? [];
  $('messages').replaceChildren(...messages.map(showMessage));
  $('messages').scrollTop = $('messages').scrollHeight;
  $('again').disabled = running !== null || messages.length === 0;
}

function headers() {
  const key = $('key').value;
  return {'Content-Type': 'application/json', ...(key ? {Authorization: 'Bearer ' + key} : {})};
}
function request(messages) {
  const number = id => $(id).value === '' ? undefined : Number($(id).value);
  const system = $('system').value.trim();
  return {messages: [...(system ? [{role: 'system', content: system}] : []),
                     ...messages.map(({role, content}) => ({role, content}))],
          stream: true, stream_options: {include_usage: true}, temperature: number('temperature'),
          top_p: number('top_p'), max_tokens: number('max_tokens'), seed: number('seed')};
}
// Calls take(document) for every event of a stream.
async function events(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = '';;) {
    const {done, value} = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, '');
      if (data !== '[DONE]') take(JSON.parse(data));
    }
  }
}
async function answer() {
  const chat = conversation(), control = running = new AbortController();
  const message = {role: 'assistant', content: '', note: ''};
  const asked = [...chat.messages];
  chat.messages.push(message);
  busy(true);
  showMessages();
  const box = $('messages').lastElementChild, start = performance.now();
  try {
    const response = await fetch('/v1/chat/completions', {method: 'POST', headers: headers(),
        body: JSON.stringify(request(asked)), signal: control.signal});
    if (!response.ok) throw new Error((await response.json()).error.message);
    await events(response, part => {
      if (part.error) throw new Error(part.error.message);
      if (part.usage) {
        const seconds = (performance.now() - start) / 1000, tokens = part.usage.completion_tokens;
        message.note = `${tokens} tokens, ${(tokens / seconds).toFixed(1)} per second`;
      }
      message.content += part.choices[0]?.delta.content ?? '';
      markdown(message.content, box.querySelector('[data-body]'));
      $('messages').scrollTop = $('messages').scrollHeight;
    });
  } catch (error) {
    message.note = error.name === 'AbortError' ? 'stopped' : String(error.message ?? error);
  }
  if (message.content === '' && message.note === 'stopped') message.content = '\u2026';
  if (running === control) running = null;
  save();
  busy(running !== null);
  if (chat.id === current) showMessages();
}
function busy(is) {
  $('stop').hidden = !is;
  $('send').hidden = is;
  $('again').disabled = is;
}
function ask() {
  const text = $('question').value.trim();
  if (!text || running) return;
  if (!conversation()) begin();
  // An answer that failed is no part of the conversation.
  conversation().messages = conversation().messages.filter(m => m.content !== '');
  conversation().messages.push({role: 'user', content: text});
  $('question').value = '';
  save();
  showList();
  answer();
}
function again() {
  const messages = conversation().messages;
  while (messages.length && messages.at(-1).role === 'assistant') messages.pop();
  if (messages.length) answer();
}
