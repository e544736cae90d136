"""Looks at what becomes of a model's Markdown on the chat page.

    test_page_text.py HEARTH MODEL SCREENSHOTS

scripts/test_page.sh makes the virtual environment and runs it.
"""
import sys
import unittest

from page_browser import MODEL, PHONE, Page

SAMPLE = r"""# Everything at once
Some *text* with **bold**, ~~strike~~, `code` and a [link](https://example.com/a_(b)).

> A quote

| name | amount | a column whose title makes it wide | another column | one more |
|---|--:|---|---|---|
| a | 1 | x | y | z |

- [x] done
- [ ] open

---

```python
def wide(a, b):  # a comment that is much wider than a phone, and wider than the page on a desktop as well, so it scrolls
    return "text" + str(42)
```

Inline $e^{i\pi} + 1 = 0$ costs $5, and

$$\int_0^\infty e^{-x^2}\,dx = \frac{\sqrt{\pi}}{2}$$

A_word_without_a_break_""" + "x" * 200
# What must never become more than text.
HOSTILE = ["<img src=x onerror=alert(1)>", "<script>alert(1)</script>", "<a href='javascript:alert(1)'>x</a>",
           "[x](javascript:alert(1))", "[x](JaVaScRiPt:alert(1))", "[x](data:text/html,<script>alert(1)</script>)",
           "![x](https://example.com/pixel.png)", "<https://example.com/><svg onload=alert(1)>",
           "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=alert(1)&gt;'>",
           "```html\n<img src=x onerror=alert(1)>\n```", "```\" onload=alert(1) x=\"\nx\n```",
           r"$\href{javascript:alert(1)}{x}$", r"$\includegraphics{https://example.com/x.png}$",
           r"$\htmlData{a=b}{x}$", "$<img src=x onerror=alert(1)>$", "[x]: https://example.com 'a\" onload=\"x'\n\n[x]",
           "| <img src=x> |\n|---|\n| <b onclick=alert(1)>x</b> |", "`<img src=x onerror=alert(1)>`",
           "1. <style>body{display:none}</style>", "<form action=https://example.com><input></form>"]


class TextTest(Page):
    @classmethod
    def setUpClass(cls):
        cls.serve(MODEL)

    def setUp(self):
        super().setUp()
        # The libraries come when a text first wants them.
        for text, ready in (("*x*", "<em>"), ("```py\n1\n```", "hljs"), ("$x$", "<math")):
            self.until(lambda: ready in self.html(text))

    # What becomes of a text, without the attributes that are the same everywhere.
    def html(self, text, growing=False):
        html = self.inside("markdown", """
            const box = document.createElement('div');
            it.markdown(arguments[0], box, arguments[1]);
            return box.innerHTML;""", text, growing)
        return html.replace(' tabindex="0"', "").replace("\n", "\\n")

    def test_paragraphs_and_spans(self):
        self.assertEqual(self.html("a\nb\n\nc"), "<p>a<br>b</p><p>c</p>")
        self.assertEqual(self.html("**b** *i* ~~s~~ `c`"),
                         "<p><strong>b</strong> <em>i</em> <del>s</del> <code>c</code></p>")
        self.assertEqual(self.html("## T *x*"), '<p class="heading"><strong>T <em>x</em></strong></p>')
        self.assertEqual(self.html("[a](https://b.c/d_(e))"),
                         '<p><a href="https://b.c/d_(e)" target="_blank" rel="noopener noreferrer">a</a></p>')
        self.assertEqual(self.html("a & b < c \"d\""), '<p>a &amp; b &lt; c "d"</p>')

    def test_numbers_and_stars_in_a_text_are_what_they_were(self):
        self.assertEqual(self.html("The war ended in\n1945. It was over."),
                         "<p>The war ended in<br>1945. It was over.</p>")
        self.assertEqual(self.html("5*3 and 4*2 and snake_case_name"), "<p>5*3 and 4*2 and snake_case_name</p>")

    def test_lists_quotes_rules_and_tasks(self):
        flat = self.html("3. a\n   - b\n4. c").replace("\\n", "")
        self.assertEqual(flat, '<ol start="3"><li>a<ul><li>b</li></ul></li><li>c</li></ol>')
        self.assertEqual(self.html("- [x] a\n- [ ] b").replace("\\n", ""),
                         '<ul><li class="task">\u2611 a</li><li class="task">\u2610 b</li></ul>')
        self.assertEqual(self.html("> a\n> b\n\n---\n\nc").replace("\\n", ""),
                         "<blockquote><p>a<br>b</p></blockquote><hr><p>c</p>")

    def test_tables_scroll_by_themselves(self):
        html = self.html("| a | b |\n|---|--:|\n| 1 | **2** |").replace("\\n", "")
        self.assertEqual(html, '<div class="table" role="region" aria-label="Table"><table><thead><tr><th>a</th>'
                               '<th align="right">b</th></tr></thead><tbody><tr><td>1</td><td align="right">'
                               '<strong>2</strong></td></tr></tbody></table></div>')

    def test_code(self):
        html = self.html("```py\n  x = 1  # y\n\n# z\n```\nw")
        self.assertIn("<span>py</span>", html)
        self.assertIn('  x = <span class="hljs-number">1</span>  <span class="hljs-comment"># y</span>\\n', html)
        self.assertTrue(html.endswith("<p>w</p>"))
        # Colours wait until a block has ended; a language that nobody knows has none.
        self.assertNotIn("hljs", self.html("```py\nx = 1", growing=True))
        self.assertIn("<code>x = 1</code>", self.html("```nonsense\nx = 1\n```"))
        self.assertIn("<code>&lt;b&gt;</code>", self.html("```\n<b>"))

    def test_formulas(self):
        self.assertIn("<msup><mi>x</mi><mn>2</mn></msup>", self.html("So $x^2$ is"))
        self.assertIn("<mfrac>", self.html(r"\(\frac{1}{2}\)"))
        for text in ("$$\na = b\n- c\n$$", "\\[\na = b\n- c\n\\]", "So\n\\[ a = b - c \\]\nis"):
            self.assertIn('display="block"', self.html(text))
        for money in ("costs $5 and $10", "US$6 or $7", "from $5-$10", "$ x $"):
            self.assertEqual(self.html(money), f"<p>{money}</p>")
        # What is none stands as it was written.
        self.assertIn(r"\frac{", self.html(r"$\frac{$"))

    def test_what_a_model_writes_is_no_html(self):
        self.run_script("window.alert = () => { window.wasHurt = true; }")
        for text in HOSTILE + ["\n\n".join(HOSTILE)]:
            bad = self.inside("markdown", """
                const box = document.createElement('div');
                it.markdown(arguments[0], box);
                document.body.append(box);
                const own = new Set(['class', 'tabindex', 'type', 'data-act', 'aria-label', 'title', 'role']);
                const all = [...box.querySelectorAll('*')].filter(node => !node.closest('math'));
                const bad = all.filter(node => 'IMG SCRIPT STYLE SVG FORM INPUT IFRAME'.split(' ').includes(node.nodeName) ||
                    [...node.attributes].some(a => a.name.startsWith('on') || a.name === 'style' ||
                        (a.name === 'href' && !/^https?:/.test(a.value))));
                const hrefs = [...box.querySelectorAll('math *')].filter(n => n.hasAttribute('href'));
                box.remove();
                return [...bad, ...hrefs].map(node => node.outerHTML);""", text)
            self.assertEqual(bad, [], text)
        self.assertIsNone(self.run_script("return window.wasHurt ?? null"))

    def test_odd_texts_take_no_time(self):
        for text in ("*" * 20000, "[" * 3000, "\\[" * 5000, "$a" * 5000, "`" * 5000 + "a", "> " * 300 + "a", "- " * 300,
                     "|" * 3000 + "\n" + "|-" * 1000, "<" * 9000, "![](" * 2000, "_a" * 5000):
            spent = self.inside("markdown", """
                const begin = performance.now();
                it.markdown(arguments[0], document.createElement('div'));
                return performance.now() - begin;""", text)
            self.assertLess(spent, 5000, text[:20])

    def test_nothing_overflows(self):
        self.inside("conversations", """
            it.conversation().messages.push({role: 'user', content: arguments[0] + 'y'.repeat(300)},
                {role: 'assistant', thinking: 'A thought. '.repeat(20), thoughtMs: 4200, content: arguments[0],
                 note: 'first word after 0.4 s'});
            it.open(it.currentId());""", SAMPLE)
        self.until(lambda: self.texts(".message math"))
        self.until(lambda: self.texts(".message .hljs-comment"))
        for where in ("desktop", "phone"):
            for scheme in ("light", "dark"):
                self.scheme(scheme)
                self.assertEqual(self.overflow(), 0)
                self.run_script("document.querySelector('.assistant').scrollIntoView()")
                self.shoot(f"markdown_{where}_{scheme}")
                self.assertEqual(self.complaints(), [])
            self.resize(PHONE)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
