const $ = id => document.getElementById(id);
const make = (tag, text, name) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (name) node.className = name;
  return node;
};
const stored = (store, name, otherwise) => {
  try { return JSON.parse(store.getItem(name)) ?? otherwise; } catch { return otherwise; }
};
const keep = (store, name, value) => { try { store.setItem(name, JSON.stringify(value)); } catch {} };

// Markdown as nodes: what a model writes is never taken for HTML.
function inline(text, into) {
  const pattern = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\((https?:[^)\s]+)\)/g;
  let at = 0;
  for (const m of text.matchAll(pattern)) {
    into.append(text.slice(at, m.index));
    if (m[1]) into.append(make('code', m[1]));
    else if (m[2]) into.append(make('strong', m[2]));
    else if (m[3]) into.append(make('em', m[3]));
    else {
      const link = make('a', m[4]);
      link.href = m[5];
      link.rel = 'noopener noreferrer';
      link.target = '_blank';
      into.append(link);
    }
    at = m.index + m[0].length;
  }
  into.append(text.slice(at));
  return into;
}
function markdown(text, into) {
  into.replaceChildren();
  text.split(/^```/m).forEach((part, i) => {
    if (i % 2 === 1) {
      const code = part.slice(part.indexOf('\n') + 1);
      const block = make('pre');
      block.tabIndex = 0;
      block.append(make('code', code.replace(/\n$/, '')));
      return into.append(block);
    }
    let list = null;
    for (const line of part.split(/\n{2,}|\n(?=[-*#\d])|(?<=^#.*)\n/m)) {
      const item = line.match(/^(?:[-*]|(\d+)[.)])\s+([^]*)/);
      const title = line.match(/^#{1,6}\s+(.*)/);
      if (item) {
        const kind = item[1] ? 'OL' : 'UL';
        if (list?.nodeName !== kind) into.append(list = make(kind));
        list.append(inline(item[2], make('li')));
      } else if (line.trim()) {
        list = null;
        into.append(title ? inline(title[1], make('strong')) : inline(line.trim(), make('p')));
      }
    }
  });
}
