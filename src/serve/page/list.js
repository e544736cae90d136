// The list of conversations: search, rename, delete and undo, export and import.
import * as all from './conversations.js';
import {$, actionButton, changed, download, make, renew, when} from './dom.js';

let renaming = null;  // id of the conversation whose title is written

function matches(chat, wanted) {
  return [all.titleOf(chat), ...chat.messages.map(m => m.content)].some(text => text.toLowerCase().includes(wanted));
}
function titleForm(chat) {
  const form = make('form', undefined, 'rename'), field = make('input');
  field.setAttribute('aria-label', 'Title');
  field.setAttribute('value', all.titleOf(chat));
  form.append(field, make('button', 'Save'));
  return form;
}
function item(chat) {
  const node = make('li'), isOpen = chat.id === all.currentId(), title = all.titleOf(chat);
  node.dataset.id = chat.id;
  if (chat.id === renaming) {
    node.append(titleForm(chat));
    return node;
  }
  const choose = actionButton('open', title);
  choose.classList.add('chat');
  choose.title = title;
  choose.setAttribute('aria-current', isOpen);
  if (all.runs.has(chat.id)) choose.append(make('span', ' \u2026'));
  node.append(choose);
  if (isOpen && chat.messages.length > 0) {
    const tools = make('div', undefined, 'tools');
    tools.append(actionButton('rename', 'Rename', 'Rename: ' + title),
                 actionButton('export', 'Export', 'Export as Markdown: ' + title),
                 actionButton('delete', 'Delete', 'Delete: ' + title));
    node.append(tools);
  }
  return node;
}
function showList() {
  const list = $('list'), hadFocus = list.contains(document.activeElement);
  const wanted = $('search').value.trim().toLowerCase();
  const shown = all.conversations().filter(c => !wanted || matches(c, wanted));
  renew(list, shown.map(item));
  $('list-none').hidden = shown.length > 0;
  const deleted = all.lastDeleted();
  $('undo-bar').hidden = !deleted;
  if (deleted) $('undo-text').textContent = `Deleted \u201c${all.titleOf(deleted)}\u201d.`;
  if (hadFocus && !list.contains(document.activeElement)) list.querySelector('[aria-current=true]')?.focus();
}
const acts = {
  open: chat => { all.open(chat.id); changed('drawer', ''); },
  rename: chat => {
    renaming = chat.id;
    showList();
    const field = $('list').querySelector('.rename input');
    field.focus();
    field.select();
  },
  export: chat => {
    const name = all.titleOf(chat).replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '') || 'conversation';
    download(name + '.md', 'text/markdown', all.asMarkdown(chat));
  },
  delete: chat => { all.remove(chat.id); $('undo').focus(); },
};
function endRename(isKept) {
  const chat = all.conversations().find(c => c.id === renaming), field = $('list').querySelector('.rename input');
  renaming = null;
  if (isKept && chat && field) all.rename(chat, field.value); else showList();
}
async function importFile() {
  const [file] = $('import-file').files;
  $('import-file').value = '';
  if (!file) return;
  try {
    const count = all.importFrom(await file.text());
    $('list-said').textContent = `Imported ${count} conversation${count === 1 ? '' : 's'}.`;
  } catch (error) {
    $('list-said').textContent = `${file.name}: ${error.message} Choose a file that \u201cExport all\u201d wrote.`;
  }
}

export function startList() {
  const list = $('list');
  list.onclick = event => {
    const button = event.target.closest('[data-act]');
    const id = button?.closest('[data-id]').dataset.id, chat = all.conversations().find(c => c.id === id);
    if (chat) acts[button.dataset.act](chat);
  };
  list.onsubmit = event => { event.preventDefault(); endRename(true); };
  list.addEventListener('keydown', event => {
    if (event.key === 'Escape' && renaming) { event.stopPropagation(); endRename(false); }
  });
  $('search').oninput = showList;
  $('undo').onclick = () => { all.undo(); $('new').focus(); };
  $('export-all').onclick = () => download('hearth-conversations.json', 'application/json', all.exported());
  $('import').onclick = () => $('import-file').click();
  $('import-file').onchange = importFile;
  when('list', showList);
  document.addEventListener('keydown', event => {
    const isCommand = event.ctrlKey || event.metaKey;
    if (!isCommand || event.key.toLowerCase() !== 'k' || event.shiftKey || event.altKey) return;
    event.preventDefault();
    changed('drawer', 'list');
    $('search').focus();
  });
}
