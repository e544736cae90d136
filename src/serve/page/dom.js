// Small helpers: elements, the browser's storage, and what changed.

export const $ = id => document.getElementById(id);

export function make(tag, text, name) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (name) node.className = name;
  return node;
}

// A button that does `act` when somebody listens for it on an element around it.
export function actionButton(act, text, label) {
  const button = make('button', text, 'quiet');
  button.type = 'button';
  button.dataset.act = act;
  if (label) {
    button.setAttribute('aria-label', label);
    button.title = label;
  }
  return button;
}

// Replaces the children of `into` by `nodes`, but keeps the leading ones that are the same: in an
// answer that grows, selections and the focus stay.
export function renew(into, nodes) {
  const old = [...into.childNodes];
  let same = 0;
  while (same < nodes.length && same < old.length && old[same].isEqualNode(nodes[same])) same++;
  for (const node of old.slice(same)) node.remove();
  into.append(...nodes.slice(same));
}

// What storage has under a name, or `otherwise`. Storage may be full, or closed to this page; then what
// it would keep lasts as long as the page.
export function stored(store, name, otherwise) {
  try { return JSON.parse(window[store].getItem(name)) ?? otherwise; } catch { return otherwise; }
}
export function storedText(store, name, otherwise) {
  const value = stored(store, name, otherwise);
  return typeof value === 'string' ? value : otherwise;
}
// Returns whether it is kept.
export function keep(store, name, value) {
  try { window[store].setItem(name, JSON.stringify(value)); } catch { return false; }
  return true;
}

// The parts of the page tell each other what changed: 'list', 'messages', 'growing', 'settled', 'status',
// 'opened', 'stats', 'refused', 'model'.
const bus = new EventTarget();
export const changed = (what, detail) => bus.dispatchEvent(new CustomEvent(what, {detail}));
export const when = (what, act) => bus.addEventListener(what, event => act(event.detail));

// Puts text on the clipboard, also where the page came without TLS and the browser has no interface for it.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = make('textarea', text, 'unseen');
    document.body.append(field);
    field.select();
    document.execCommand('copy');
    field.remove();
  }
}

// Gives the reader a file.
export function download(name, type, text) {
  const link = make('a');
  link.href = URL.createObjectURL(new Blob([text], {type}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
