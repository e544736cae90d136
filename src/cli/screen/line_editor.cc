#include "cli/screen/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "cli/models/cache_folder.h"
#include "cli/screen/interrupts.h"
#include "text/jinja/values/text.h"

namespace hearth::cli {
namespace {

constexpr int kHistorySize = 1000;
// What terminals put around pasted text once they were asked to, and how they are asked.
constexpr wchar_t kPasteEnd[] = L"\033[201~";
constexpr std::string_view kMarkPastes = "\033[?2004h";
constexpr std::string_view kLeavePastes = "\033[?2004l";
constexpr std::wstring_view kBlockMark = L"\"\"\"";

// libedit and its history measure and write characters by the locale.
void UseUtf8Locale() {
  if (std::setlocale(LC_CTYPE, "") != nullptr && std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0) {
    return;
  }
  std::setlocale(LC_CTYPE, "C.UTF-8");
}

std::string ToUtf8(const std::wstring& text) {
  return jinja::EncodeUtf8(jinja::Text(text.begin(), text.end()));
}

void WriteToTerminal(std::string_view bytes) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, bytes.data(), bytes.size());
}

}  // namespace

struct LineEditor::Impl {
  explicit Impl(const std::string& prompt_text, const std::string& path);
  ~Impl();

  static Impl& Of(EditLine* editor);
  static wchar_t* Prompt(EditLine* editor);
  static int ReadCharacter(EditLine* editor, wchar_t* out);
  static unsigned char Paste(EditLine* editor, int key);

  // The next byte of standard input: 1, or 0 at its end, after Ctrl-C and after an error.
  int ReadByte(unsigned char& byte);
  // What libedit returns for the next line: without its end; false where there is none.
  bool ReadLine(std::wstring& line);
  void Remember(const std::wstring& message);

  EditLine* editor = nullptr;
  HistoryW* history = nullptr;
  std::string history_path;
  std::wstring first_prompt, block_prompt = L"... ";
  bool is_in_block = false;
  bool was_interrupted = false;
  int read_errno = 0;
  unsigned char bytes[4096] = {};  // read, but not yet taken
  size_t begin = 0, end = 0;
};

LineEditor::Impl::Impl(const std::string& prompt_text, const std::string& path)
    : history_path(path), first_prompt(prompt_text.begin(), prompt_text.end()) {
  UseUtf8Locale();
  editor = el_init_fd("hearth", stdin, stderr, stderr, STDIN_FILENO, STDERR_FILENO, STDERR_FILENO);
  history = history_winit();
  if (editor == nullptr || history == nullptr) {
    throw Error(ErrorCode::kIo, "terminal", "the line editor cannot be started");
  }
  el_wset(editor, EL_CLIENTDATA, this);
  el_wset(editor, EL_SIGNAL, 0);  // cli/screen/interrupts.h catches them
  el_wset(editor, EL_PROMPT, &Impl::Prompt);
  el_wset(editor, EL_GETCFN, &Impl::ReadCharacter);
  el_wset(editor, EL_EDITOR, L"emacs");
  el_wset(editor, EL_ADDFN, L"hearth-paste", L"insert pasted text", &Impl::Paste);
  el_wset(editor, EL_BIND, L"\\e[200~", L"hearth-paste", nullptr);
  // Else a terminal drops on Ctrl-C what was written last, which may be the reply to it.
  for (const wchar_t* mode : {L"-d", L"-x"}) {
    el_wset(editor, EL_SETTY, mode, L"+noflsh", nullptr);
  }
  HistEventW event;
  history_w(history, &event, H_SETSIZE, kHistorySize);
  history_w(history, &event, H_SETUNIQUE, 1);
  el_wset(editor, EL_HIST, history_w, history);
  if (!history_path.empty()) history_w(history, &event, H_LOAD, history_path.c_str());
}

LineEditor::Impl::~Impl() {
  if (editor != nullptr) el_end(editor);
  if (history != nullptr) history_wend(history);
}

LineEditor::Impl& LineEditor::Impl::Of(EditLine* editor) {
  void* impl = nullptr;
  el_wget(editor, EL_CLIENTDATA, &impl);
  return *static_cast<Impl*>(impl);
}

wchar_t* LineEditor::Impl::Prompt(EditLine* editor) {
  Impl& impl = Of(editor);
  return impl.is_in_block ? impl.block_prompt.data() : impl.first_prompt.data();
}

int LineEditor::Impl::ReadByte(unsigned char& byte) {
  while (begin == end) {
    pollfd wait[2] = {{STDIN_FILENO, POLLIN, 0}, {InterruptDescriptor(), POLLIN, 0}};
    if (poll(wait, 2, -1) < 0) {
      if (errno == EINTR) continue;
      read_errno = errno;
      return 0;
    }
    if (wait[1].revents != 0) {
      was_interrupted = true;
      return 0;
    }
    const ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0 && errno != EIO) read_errno = errno;  // EIO: the terminal is gone
    if (n <= 0) return 0;
    begin = 0;
    end = static_cast<size_t>(n);
  }
  byte = bytes[begin++];
  return 1;
}

// One character of UTF-8; U+FFFD for a byte that is none.
int LineEditor::Impl::ReadCharacter(EditLine* editor, wchar_t* out) {
  Impl& impl = Of(editor);
  unsigned char lead = 0;
  if (impl.ReadByte(lead) == 0) return 0;
  const int more = lead < 0x80             ? 0
                   : (lead & 0xE0) == 0xC0 ? 1
                   : (lead & 0xF0) == 0xE0 ? 2
                   : (lead & 0xF8) == 0xF0 ? 3
                                           : -1;
  char32_t c = more < 0 ? 0xFFFD : more == 0 ? lead : lead & (0x3F >> more);
  for (int i = 0; i < more; ++i) {
    unsigned char next = 0;
    if (impl.ReadByte(next) == 0) return 0;
    if ((next & 0xC0) != 0x80) {
      --impl.begin;
      c = 0xFFFD;
      break;
    }
    c = c << 6 | (next & 0x3F);
  }
  *out = static_cast<wchar_t>(c);
  return 1;
}

// Takes everything up to the mark after pasted text into the line, line ends included.
unsigned char LineEditor::Impl::Paste(EditLine* editor, int /*key*/) {
  const std::wstring_view mark = kPasteEnd;
  std::wstring text;
  wchar_t c = 0;
  while (el_wgetc(editor, &c) == 1) {
    if (c == L'\r') c = L'\n';
    text.push_back(c);
    if (std::wstring_view(text).ends_with(mark)) {
      text.resize(text.size() - mark.size());
      break;
    }
  }
  while (!text.empty() && text.back() == L'\n') text.pop_back();
  std::erase(text, L'\0');
  if (!text.empty() && el_winsertstr(editor, text.c_str()) != 0) return CC_ERROR;
  return CC_REFRESH;
}

bool LineEditor::Impl::ReadLine(std::wstring& line) {
  // libedit would only do this after the prompt, and lose a Ctrl-D typed in between: until then the
  // terminal takes it for an end of file, and forgets that when its mode changes.
  el_wset(editor, EL_PREP_TERM, 1);
  int count = 0;
  const wchar_t* read = el_wgets(editor, &count);
  if (read == nullptr || count <= 0 || was_interrupted) return false;
  line.assign(read, static_cast<size_t>(count));
  if (line.back() == L'\n') line.pop_back();
  return true;
}

void LineEditor::Impl::Remember(const std::wstring& message) {
  HistEventW event;
  history_w(history, &event, H_ENTER, message.c_str());
  if (history_path.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(history_path).parent_path(), ignored);
  const mode_t before = umask(077);
  history_w(history, &event, H_SAVE, history_path.c_str());
  umask(before);
}

LineEditor::LineEditor(const std::string& prompt, const std::string& history_path)
    : impl_(std::make_unique<Impl>(prompt, history_path)) {}

LineEditor::~LineEditor() = default;

LineEditor::Result LineEditor::Read(std::string& message) {
  impl_->was_interrupted = false;
  impl_->read_errno = 0;
  impl_->is_in_block = false;
  el_resize(impl_->editor);
  WriteToTerminal(kMarkPastes);
  std::wstring text, line;
  bool is_whole = false;
  while (!is_whole && impl_->ReadLine(line)) {
    if (!impl_->is_in_block) {
      text = line;
      is_whole = !line.starts_with(kBlockMark);
      if (!is_whole) text.erase(0, kBlockMark.size());
    } else {
      text += L'\n' + line;
    }
    if (!is_whole && text.ends_with(kBlockMark)) {
      text.resize(text.size() - kBlockMark.size());
      is_whole = true;
    }
    impl_->is_in_block = !is_whole;
  }
  WriteToTerminal(kLeavePastes);
  if (impl_->was_interrupted) {
    impl_->begin = impl_->end = 0;
    ClearInterrupt();
    return Result::kInterrupted;
  }
  if (impl_->read_errno != 0) {
    throw Error(ErrorCode::kIo, "standard input", std::strerror(impl_->read_errno));
  }
  if (!is_whole) return Result::kEnd;
  if (!text.empty()) impl_->Remember(text);
  message = ToUtf8(text);
  return Result::kMessage;
}

std::string ChatHistoryPath() {
  const std::string folder = StateFolder();
  return folder.empty() ? "" : folder + "/history";
}

}  // namespace hearth::cli
