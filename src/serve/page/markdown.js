// Markdown as nodes. What a model writes is never taken for HTML: the parser is told to know none, only the
// tags and attributes below are made anew from what it writes, and the page's policy runs no script but the
// page's own. The libraries are loaded when the first text wants them; until then it stands as written.
import {actionButton, changed, make, renew} from './dom.js';

const libraries = {};  // by name: null while it is under way, then true
function has(name) {
  if (!(name in libraries)) {
    libraries[name] = null;
    import(`./lib/${name}.js`).then(() => {
      if (name === 'marked') setUp();
      libraries[name] = true;
      changed('messages');
    }, () => { delete libraries[name]; });
  }
  return libraries[name];
}
const escapes = {'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;'};
const escaped = text => text.replace(/[&<>"]/g, c => escapes[c]);

// Formulas: $$..$$ and \[..\] on lines of their own, $..$ and \(..\) inside of a line. Bounded, so that the
// time for a text grows with its length alone. A dollar before a digit ends none: that is money.
const displays = /^(?:\$\$([^$]{1,2000})\$\$|\\\[([\s\S]{1,2000}?)\\\])/;
const inlines = /^(?:\$(?![\s$])([^$\n]{0,500}[^\s$\\])\$(?!\d)|\\\(([\s\S]{1,500}?)\\\))/;
const formula = (type, found, isDisplay) => found && {type, raw: found[0], text: found[1] ?? found[2], isDisplay};
const renderFormula = ({text, isDisplay}) => `<span class="math${isDisplay ? ' display' : ''}">${escaped(text)}</span>`;
const extensions = [
  {name: 'formulaBlock', level: 'block', start: source => source.match(/\n(?:\$\$|\\\[)/)?.index,
   tokenizer: source => formula('formulaBlock', source.match(displays), true) ?? undefined,
   renderer: token => `<p>${renderFormula(token)}</p>`},
  {name: 'formula', level: 'inline', start: source => source.match(/\$|\\[([]/)?.index,
   tokenizer: source => formula('formula', source.match(displays), true) ??
                        formula('formula', source.match(inlines), false) ?? undefined,
   renderer: renderFormula},
];
const renderer = {
  heading: text => `<p class="heading"><strong>${text}</strong></p>`,
  checkbox: isDone => isDone ? '\u2611 ' : '\u2610 ',
  listitem: (text, isTask) => `<li${isTask ? ' class="task"' : ''}>${text}</li>`,
  image: (href, title, text) => `<a href="${escaped(href ?? '')}">${text || 'image'}</a>`,
};
// undefined: the parser takes the mark for text; false: it goes on as usual.
const tokenizer = {
  html: () => undefined,
  tag: () => undefined,
  // 5*3 and 4*2 are products.
  emStrong: (source, masked, before = '') => /\w$/.test(before) && /^\*\w/.test(source) ? undefined : false,
};
function setUp() {
  globalThis.marked.use({gfm: true, breaks: true, headerIds: false, mangle: false, extensions, renderer, tokenizer});
}
// Attributes of the tags that are let through, and what their values must look like.
const link = /^(?:https?:|mailto:)/i, number = /^\d{1,9}$/, side = /^(?:left|right|center)$/;
const classes = /^(?:heading|math(?: display)?|(?:language|hljs)-[\w+#.-]+|task)$/;
const allowed = {
  P: {class: classes}, BR: {}, STRONG: {}, EM: {}, DEL: {}, CODE: {class: classes}, PRE: {}, BLOCKQUOTE: {}, HR: {},
  UL: {}, OL: {start: number}, LI: {class: classes}, TABLE: {}, THEAD: {}, TBODY: {}, TR: {}, TH: {align: side}, TD: {align: side},
  A: {href: link}, SPAN: {class: classes},
};
// Appends copies of the children of `from`, which belong to a document that loads and runs nothing. Of other
// tags only the text stays.
function copyAllowed(from, into) {
  for (const node of from.childNodes) {
    if (node.nodeType === Node.TEXT_NODE) into.append(node.data);
    if (node.nodeType !== Node.ELEMENT_NODE) continue;
    const attributes = Object.hasOwn(allowed, node.nodeName) ? allowed[node.nodeName] : null;
    if (!attributes) {
      copyAllowed(node, into);
      continue;
    }
    const copy = make(node.nodeName);
    for (const [name, pattern] of Object.entries(attributes)) {
      const value = node.getAttribute(name);
      if (value !== null && pattern.test(value)) copy.setAttribute(name, value);
    }
    copyAllowed(node, copy);
    into.append(copy);
  }
  return into;
}
const clean = html => copyAllowed(new DOMParser().parseFromString('<body>' + html, 'text/html').body,
                                  document.createDocumentFragment());

const highlighted = new Map();  // a language and code -> its nodes
function highlight(code, language) {
  if (!has('highlight') || !globalThis.hljs.getLanguage(language)) return;
  const text = code.textContent, key = language + '\n' + text;
  if (highlighted.size > 200) highlighted.clear();
  if (!highlighted.has(key)) highlighted.set(key, clean(globalThis.hljs.highlight(language, text, true).value));
  code.replaceChildren(highlighted.get(key).cloneNode(true));
}
// A block of code with its language and a button that copies it.
function frameCode(pre, isOpen) {
  const code = pre.firstElementChild, language = code.className.match(/^language-([\w+#.-]+)$/)?.[1] ?? '';
  const box = make('div', undefined, 'code'), head = make('div', undefined, 'code-head');
  head.append(make('span', language), actionButton('copy-code', 'Copy', 'Copy the code'));
  code.removeAttribute('class');
  code.textContent = code.textContent.replace(/\n$/, '');
  if (language && !isOpen) highlight(code, language.toLowerCase());
  pre.replaceWith(box);
  pre.tabIndex = 0;
  box.append(head, pre);
}
function frameTable(table) {
  const box = make('div', undefined, 'table');
  table.replaceWith(box);
  box.tabIndex = 0;
  box.setAttribute('role', 'region');
  box.setAttribute('aria-label', 'Table');
  box.append(table);
}
// MathML, which browsers draw by themselves: neither fonts nor styles are needed.
function drawFormula(span) {
  if (!has('katex')) return;
  const displayMode = span.classList.contains('display'), text = span.textContent;
  try {
    globalThis.katex.render(text, span, {displayMode, output: 'mathml', trust: false, strict: 'ignore',
                                         maxSize: 20, maxExpand: 200});
    if (displayMode) span.tabIndex = 0;
  } catch {
    span.textContent = text;  // a text that is not a formula is shown as it was written
  }
}

// Shows `text` in `into`. While it grows, the code that comes last has no colours: they would change with
// every word.
export function markdown(text, into, isGrowing = false) {
  if (!has('marked')) {
    renew(into, [make('p', text, 'plain')]);
    return;
  }
  // With a line's end, without which the parser knows no code block that is not closed yet.
  const nodes = clean(globalThis.marked.parse(text + '\n'));
  for (const link of nodes.querySelectorAll('a')) {
    link.target = '_blank';
    link.rel = 'noopener noreferrer';
  }
  for (const pre of nodes.querySelectorAll('pre')) {
    frameCode(pre, isGrowing && pre.parentNode === nodes && pre === nodes.lastElementChild);
  }
  for (const table of nodes.querySelectorAll('table')) frameTable(table);
  for (const span of nodes.querySelectorAll('.math')) drawFormula(span);
  renew(into, [...nodes.childNodes].filter(node => node.nodeType !== Node.TEXT_NODE || node.textContent.trim()));
}
