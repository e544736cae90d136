"""The chat page with answers that the test writes: every step of them can be looked at."""
from selenium.webdriver.common.by import By

from page_browser import MODEL, Page

# Puts window.answers in the place of the server's: of each request its body, and what answers it.
STAGE = """
    const really = window.fetch;
    window.answers = [];
    window.fetch = (url, options) => url !== '/v1/chat/completions' ? really(url, options)
        : new Promise((resolve, reject) => {
      let pipe;
      const response = new Response(new ReadableStream({start(it) { pipe = it; }}));
      const to = new TextEncoder();
      const send = part => pipe.enqueue(to.encode('data: ' + JSON.stringify(part) + '\\n\\n'));
      const choice = (delta, finish_reason = null) => ({choices: [{index: 0, delta, finish_reason}]});
      options.signal.addEventListener('abort', () => {
        reject(options.signal.reason);
        pipe.error(options.signal.reason);
      });
      answers.push({
        messages: JSON.parse(options.body).messages.map(m => m.role + ': ' + m.content),
        key: options.headers.Authorization,
        say(text) { resolve(response); send(choice({content: text})); },
        think(text) { resolve(response); send(choice({reasoning_content: text})); },
        count(prompt_tokens, completion_tokens) {
          send({choices: [], usage: {prompt_tokens, completion_tokens}});
        },
        end(reason) { send(choice({}, reason)); pipe.close(); },
        lose() { reject(new TypeError('gone')); },
        refuse(message, status = 400, code = null) {
          resolve(Response.json({error: {message, code}}, {status}));
        }});
    });"""


class StagedPage(Page):
    @classmethod
    def setUpClass(cls):
        cls.serve(MODEL)

    def setUp(self):
        super().setUp()
        self.run_script(STAGE)

    # What is done with the newest request: say, end or refuse.
    def reply(self, verb, *arguments):
        self.until(lambda: self.run_script("return answers.length > 0"))
        self.run_script("answers.at(-1)[arguments[0]](...[...arguments].slice(1))", verb, *arguments)

    def asked(self):
        return self.run_script("return answers.at(-1).messages")

    def messages(self):
        return self.texts(".message [data-body]")

    def titles(self):
        return self.run_script("return [...document.querySelectorAll('#list .chat')].map(node => node.title)")

    def in_storage(self):
        return self.run_script(
            "return JSON.parse(localStorage.getItem('hearth.conversations') ?? '[]')"
            ".map(c => c.messages.map(m => m.content))")

    def question(self):
        return self.find("#question").get_attribute("value")

    def tell(self, question, *words):
        self.ask(question)
        self.until(lambda: question.strip() in self.messages())
        for word in words:
            self.reply("say", word)
        said = "".join(words).rpartition("</think>")[2].strip()
        self.until(lambda: self.answer() == said)

    def finish(self, note="", reason="stop"):
        self.reply("end", reason)
        self.until(lambda: note in self.note() and self.find("#send").is_displayed())

    # Presses a button of the last message of a role.
    def press(self, act, role="assistant"):
        self.browser.find_elements(By.CSS_SELECTOR, f".{role} [data-act={act}]")[-1].click()
