const $ = id => document.getElementById(id);
const make = (tag, text, name) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (name) node.className = name;
  return node;
};
// Puts nodes in the place of what is inside, and leaves alone what is the same from the beginning on:
// of an answer that grows, selections and the focus stay.
function renew(into, nodes) {
  const old = [...into.childNodes];
  let same = 0;
  while (same < nodes.length && same < old.length && old[same].isEqualNode(nodes[same])) same++;
  for (const node of old.slice(same)) node.remove();
  into.append(...nodes.slice(same));
}

// Markdown as nodes: what a model writes is never taken for HTML. The time it takes grows with the
// length of a text alone: no part of a pattern looks behind, or beyond the next character of its kind.
const spans = new RegExp([
  /`([^`]+)`/, /\*\*([^*]+)\*\*/, /\*([^*\s](?:[^*]*[^*\s])?)\*(?!\w)/,
  /\[([^\][]+)\]\((https?:[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)/].map(p => p.source).join('|'), 'g');
function inline(text, into) {
  let at = 0;
  for (const m of text.matchAll(spans)) {
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
function codeBlock(lines, indent) {
  const block = make('pre');
  block.tabIndex = 0;
  const margin = new RegExp(`^ {0,${indent}}`);
  block.append(make('code', lines.map(line => line.replace(margin, '')).join('\n')));
  return block;
}
function markdown(text, into) {
  const all = document.createDocumentFragment();
  const lists = [];    // that are open, the innermost last: {indent, node}
  let paragraph = [];  // lines of the one that is open
  const inside = () => lists.at(-1)?.node.lastElementChild ?? all;
  // Ends the paragraph, and the lists for which isPast.
  const end = isPast => {
    const said = paragraph.join('\n').trim(), into = inside();
    if (said) into.append(inline(said, make(lists.length && !into.hasChildNodes() ? 'span' : 'p')));
    paragraph = [];
    while (lists.length && isPast(lists.at(-1))) lists.pop();
  };
  const lines = text.split(/\r?\n/);
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i], indent = line.search(/\S|$/);
    // What is not indented further than its mark is no part of an item.
    const isOutside = list => indent < list.indent + 2;
    const fence = line.match(/^ *(`{3,}|~{3,})[^`]*$/), title = line.match(/^ {0,3}#{1,6} +(.*)/);
    const item = line.match(/^ *(?:[-*+]|(\d{1,9})[.)]) +(\S.*)/);
    if (fence) {
      end(isOutside);
      const isEnd = line => line.trim().startsWith(fence[1]) && !/[^`~\s]/.test(line);
      const first = ++i;
      while (i < lines.length && !isEnd(lines[i])) i++;
      inside().append(codeBlock(lines.slice(first, i), indent));
    } else if (item && canBegin(item[1], paragraph, lists.filter(l => l.indent <= indent))) {
      const kind = item[1] ? 'OL' : 'UL';
      end(list => list.indent > indent);
      const near = lists.at(-1), isNext = near && isOutside(near);
      if (isNext && near.node.nodeName !== kind) lists.pop();
      if (!isNext || near.node.nodeName !== kind) {
        const node = make(kind);
        if (item[1]) node.start = item[1];
        inside().append(node);
        lists.push({indent, node});
      }
      lists.at(-1).node.append(make('li'));
      paragraph.push(item[2]);
    } else if (title) {
      end(() => true);
      all.append(make('p'));
      all.lastChild.append(inline(title[1], make('strong')));
    } else if (line.trim()) {
      if (paragraph.length === 0) end(isOutside);
      paragraph.push(lists.length ? line.trim() : line);
    } else {
      end(() => false);
    }
  }
  end(() => true);
  renew(into, [...all.childNodes]);
}
// Within a paragraph a number that happens to begin a line is no item, except as the next of a list.
function canBegin(number, paragraph, lists) {
  return !number || number === '1' || paragraph.length === 0 || lists.at(-1)?.node.nodeName === 'OL';
}
