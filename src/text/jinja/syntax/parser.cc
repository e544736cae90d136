#include "text/jinja/syntax/parser.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/syntax/expression_parser.h"
#include "text/jinja/syntax/token_stream.h"

namespace hearth::jinja {
namespace {

// Restores a variable at the end of a scope.
template <typename T>
class Restore {
 public:
  Restore(T& variable, T value) : variable_(variable), old_(std::exchange(variable, value)) {}
  ~Restore() { variable_ = old_; }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& variable_;
  T old_;
};

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(tokens_) {}

  TemplateAst Run() {
    TemplateAst tree;
    tree.body = Statements({});
    tree.blocks = std::move(blocks_);
    if (!expressions_.around.unknown.empty()) throw expressions_.around.unknown.front();
    return tree;
  }

 private:
  using EndNames = std::initializer_list<std::string_view>;

  // Statements up to a tag with one of the names, which stays the current token; without names up
  // to the end of the template.
  Body Statements(EndNames ends) {
    const DepthGuard guard(expressions_.around.depth, kMaxTreeDepth, tokens_.line());
    Body body;
    while (!tokens_.Is(TokenKind::kEnd)) {
      if (!tokens_.Is(TokenKind::kBlockBegin)) {
        AddOutput(body);
        continue;
      }
      tokens_.Take();
      for (const std::string_view end : ends) {
        if (tokens_.IsName(end)) return body;
      }
      body.push_back(Statement(ends));
      tokens_.ExpectEnd(TokenKind::kBlockEnd);
    }
    if (ends.size() > 0) {
      tokens_.Fail("the template ends where '" + std::string(*(ends.end() - 1)) + "' is missing");
    }
    return body;
  }

  // The body of a tag up to one of `ends`.
  Body BodyUntil(EndNames ends) {
    tokens_.SkipOperator(":");
    tokens_.ExpectEnd(TokenKind::kBlockEnd);
    return Statements(ends);
  }
  Body BodyUntilEnd(std::string_view end) {
    Body body = BodyUntil({end});
    tokens_.Take();
    return body;
  }

  void AddOutput(Body& body) {
    auto output = std::make_unique<OutputStmt>(tokens_.line());
    for (;;) {
      if (tokens_.Is(TokenKind::kData)) {
        output->parts.emplace_back(tokens_.Take().text);
      } else if (tokens_.Is(TokenKind::kVariableBegin)) {
        tokens_.Take();
        output->parts.emplace_back(expressions_.Tuple());
        tokens_.ExpectEnd(TokenKind::kVariableEnd);
      } else {
        break;
      }
    }
    body.push_back(std::move(output));
  }

  StmtPtr Statement(EndNames ends) {
    using Parse = StmtPtr (Parser::*)();
    static constexpr std::pair<std::string_view, Parse> kStatements[] = {
        {"for", &Parser::For},
        {"if", &Parser::If},
        {"set", &Parser::Set},
        {"macro", &Parser::Macro},
        {"call", &Parser::CallBlock},
        {"filter", &Parser::FilterBlock},
        {"with", &Parser::With},
        {"block", &Parser::Block},
        {"print", &Parser::Print},
        {"generation", &Parser::Generation},
        {"break", &Parser::Jump},
        {"continue", &Parser::Jump},
        {"include", &Parser::Include},
        {"import", &Parser::Import},
        {"from", &Parser::From},
        {"extends", &Parser::Extends},
        {"autoescape", &Parser::AutoEscape},
    };
    if (!tokens_.Is(TokenKind::kName)) {
      tokens_.Fail("expected the name of a tag, found " + Describe(tokens_.current()));
    }
    for (const auto& [name, parse] : kStatements) {
      if (tokens_.IsName(name)) return (this->*parse)();
    }
    const std::string name = EncodeUtf8(tokens_.current().text);
    if (ends.size() == 0) tokens_.Fail("the tag '" + name + "' is unknown here");
    tokens_.Fail("the tag '" + name + "' is unknown here, where '" +
                 std::string(*(ends.end() - 1)) + "' is still missing");
  }

  StmtPtr For() {
    auto stmt = std::make_unique<ForStmt>(tokens_.Take().line);
    const Restore<int> loops(expressions_.around.loops_around,
                             expressions_.around.loops_around + 1);
    stmt->target = expressions_.Target(false);
    tokens_.ExpectName("in");
    stmt->items = expressions_.Tuple(false);
    if (tokens_.SkipName("if")) {
      const Restore<bool> branch(expressions_.around.in_branch, false);
      stmt->condition = expressions_.Expression();
    }
    stmt->recursive = tokens_.SkipName("recursive");
    const Restore<bool> branch(expressions_.around.in_branch, false);
    {
      const Restore<bool> jumps(may_jump_, true);
      stmt->body = BodyUntil({"else", "endfor"});
    }
    if (tokens_.IsName("else")) {
      const Restore<bool> jumps(may_jump_, may_jump_ && !stmt->recursive);
      tokens_.Take();
      stmt->otherwise = BodyUntil({"endfor"});
    }
    tokens_.Take();
    return stmt;
  }

  StmtPtr If() {
    auto stmt = std::make_unique<IfStmt>(tokens_.line());
    const Restore<bool> branch(expressions_.around.in_branch, true);
    do {
      tokens_.Take();
      ExprPtr test = expressions_.Tuple(false);
      stmt->branches.emplace_back(std::move(test), BodyUntil({"elif", "else", "endif"}));
    } while (tokens_.IsName("elif"));
    if (tokens_.Take().text == Own("else")) stmt->otherwise = BodyUntilEnd("endif");
    return stmt;
  }

  StmtPtr Set() {
    const int line = tokens_.Take().line;
    ExprPtr target = expressions_.Target(true);
    if (tokens_.SkipOperator("=")) {
      auto stmt = std::make_unique<SetStmt>(line);
      stmt->target = std::move(target);
      stmt->value = expressions_.Tuple();
      return stmt;
    }
    auto stmt = std::make_unique<SetBlockStmt>(line);
    stmt->target = std::move(target);
    const Restore<bool> branch(expressions_.around.in_branch, false);
    stmt->filter = expressions_.FilterChain(false);
    stmt->body = BodyUntilEnd("endset");
    return stmt;
  }

  void Signature(MacroBody& macro) {
    tokens_.ExpectOperator("(");
    // A parameter may be called "loop".
    const Restore<int> loops(expressions_.around.loops_around, 0);
    while (!tokens_.IsOperator(")")) {
      if (!macro.parameters.empty()) tokens_.ExpectOperator(",");
      macro.parameters.push_back(expressions_.TargetName());
      if (tokens_.SkipOperator("=")) {
        macro.defaults.push_back(expressions_.Expression());
      } else if (!macro.defaults.empty()) {
        tokens_.Fail("a parameter without a default follows one with a default");
      }
    }
    tokens_.Take();
  }

  void BodyOfMacro(MacroBody& macro, std::string_view end) {
    MacroUses uses;
    uses.outer = expressions_.around.macro_uses;
    const Restore<MacroUses*> scope(expressions_.around.macro_uses, &uses);
    const Restore<bool> jumps(may_jump_, false);
    const Restore<bool> branch(expressions_.around.in_branch, false);
    macro.body = BodyUntilEnd(end);
    const auto is_parameter = [&](const char* name) {
      return std::any_of(macro.parameters.begin(), macro.parameters.end(),
                         [&](const auto& parameter) { return parameter->name == Own(name); });
    };
    if (uses.caller) CheckCaller(macro);
    macro.uses_caller = uses.caller && !is_parameter("caller");
    macro.uses_kwargs = uses.kwargs && !is_parameter("kwargs");
    macro.uses_varargs = uses.varargs && !is_parameter("varargs");
  }

  // A parameter may be called "caller" where a call without a caller gives it a value.
  static void CheckCaller(const MacroBody& macro) {
    const size_t without_default = macro.parameters.size() - macro.defaults.size();
    for (size_t i = 0; i < without_default; ++i) {
      if (macro.parameters[i]->name != Own("caller")) continue;
      throw Failure("the parameter 'caller' of a macro needs a default", macro.parameters[i]->line);
    }
  }

  StmtPtr Macro() {
    auto stmt = std::make_unique<MacroStmt>(tokens_.Take().line);
    stmt->target = expressions_.TargetName();
    Signature(stmt->macro);
    BodyOfMacro(stmt->macro, "endmacro");
    return stmt;
  }

  StmtPtr CallBlock() {
    auto stmt = std::make_unique<CallBlockStmt>(tokens_.Take().line);
    if (tokens_.IsOperator("(")) Signature(stmt->caller);
    ExprPtr call = expressions_.Expression();
    if (call->kind != ExprKind::kCall) throw Failure("'call' needs a call", stmt->line);
    stmt->call.reset(static_cast<CallExpr*>(call.release()));
    BodyOfMacro(stmt->caller, "endcall");
    return stmt;
  }

  StmtPtr FilterBlock() {
    auto stmt = std::make_unique<FilterBlockStmt>(tokens_.Take().line);
    const Restore<bool> branch(expressions_.around.in_branch, false);
    stmt->filter = expressions_.FilterChain(true);
    stmt->body = BodyUntilEnd("endfilter");
    return stmt;
  }

  StmtPtr With() {
    auto stmt = std::make_unique<WithStmt>(tokens_.Take().line);
    const Restore<int> loops(expressions_.around.loops_around, 0);
    while (!tokens_.Is(TokenKind::kBlockEnd)) {
      if (!stmt->assignments.empty()) tokens_.ExpectOperator(",");
      ExprPtr target = expressions_.Target(false);
      tokens_.ExpectOperator("=");
      ExprPtr value = expressions_.Expression();
      stmt->assignments.emplace_back(std::move(target), std::move(value));
    }
    const Restore<bool> branch(expressions_.around.in_branch, false);
    stmt->body = BodyUntilEnd("endwith");
    return stmt;
  }

  StmtPtr Block() {
    auto stmt = std::make_unique<BlockStmt>(tokens_.Take().line);
    stmt->name = tokens_.TakeName();
    for (const BlockStmt* other : blocks_) {
      if (other->name == stmt->name) throw Failure("a block is defined twice", stmt->line);
    }
    blocks_.push_back(stmt.get());
    stmt->scoped = tokens_.SkipName("scoped");
    if (tokens_.SkipName("required")) tokens_.Fail("blocks of other templates are not supported");
    const Restore<bool> jumps(may_jump_, false);
    const Restore<bool> branch(expressions_.around.in_branch, false);
    stmt->body = BodyUntilEnd("endblock");
    if (tokens_.Is(TokenKind::kName) && tokens_.current().text == stmt->name) tokens_.Take();
    return stmt;
  }

  StmtPtr Print() {
    auto stmt = std::make_unique<OutputStmt>(tokens_.Take().line);
    while (!tokens_.Is(TokenKind::kBlockEnd)) {
      if (!stmt->parts.empty()) tokens_.ExpectOperator(",");
      stmt->parts.emplace_back(expressions_.Expression());
    }
    return stmt;
  }

  StmtPtr Generation() {
    auto stmt = std::make_unique<GenerationStmt>(tokens_.Take().line);
    const Restore<bool> jumps(may_jump_, false);
    const Restore<bool> branch(expressions_.around.in_branch, false);
    stmt->body = BodyUntilEnd("endgeneration");
    return stmt;
  }

  StmtPtr AutoEscape() {
    auto stmt = std::make_unique<AutoEscapeStmt>(tokens_.Take().line);
    stmt->escapes = expressions_.Expression();
    const Restore<bool> branch(expressions_.around.in_branch, false);
    stmt->body = BodyUntilEnd("endautoescape");
    return stmt;
  }

  std::unique_ptr<OtherTemplateStmt> OtherTemplate() {
    auto stmt = std::make_unique<OtherTemplateStmt>(tokens_.line());
    stmt->tag = EncodeUtf8(tokens_.Take().text);
    stmt->other = expressions_.Expression();
    return stmt;
  }

  StmtPtr Extends() { return OtherTemplate(); }

  StmtPtr Include() {
    auto stmt = OtherTemplate();
    SkipNames("ignore", "missing");
    SkipContext();
    return stmt;
  }

  StmtPtr Import() {
    auto stmt = OtherTemplate();
    tokens_.ExpectName("as");
    stmt->imported.push_back(expressions_.TargetName());
    SkipContext();
    return stmt;
  }

  StmtPtr From() {
    auto stmt = OtherTemplate();
    tokens_.ExpectName("import");
    do {
      if (SkipContext()) break;
      auto name = expressions_.TargetName();
      if (Plain(name->name[0]) == '_') tokens_.Fail("a name that begins with '_' is no import");
      if (tokens_.SkipName("as")) name = expressions_.TargetName();
      stmt->imported.push_back(std::move(name));
    } while (!SkipContext() && tokens_.SkipOperator(","));
    return stmt;
  }

  // Both names, or none of them.
  bool SkipNames(std::string_view first, std::string_view second) {
    if (!tokens_.IsName(first) || !TokenStream::IsName(tokens_.next(), second)) return false;
    tokens_.Take();
    tokens_.Take();
    return true;
  }
  bool SkipContext() { return SkipNames("with", "context") || SkipNames("without", "context"); }

  StmtPtr Jump() {
    if (!may_jump_) tokens_.Fail(Describe(tokens_.current()) + " stands outside a loop");
    const bool is_break = tokens_.IsName("break");
    return std::make_unique<JumpStmt>(is_break ? StmtKind::kBreak : StmtKind::kContinue,
                                      tokens_.Take().line);
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  bool may_jump_ = false;
  std::vector<const BlockStmt*> blocks_;
};

}  // namespace

TemplateAst ParseTemplate(std::string_view source_utf8) {
  if (source_utf8.size() > kMaxTemplateBytes) {
    throw LimitExceeded("the template is longer than 1 MiB", 1);
  }
  TemplateAst tree = Parser(Tokenize(source_utf8)).Run();
  ResolveNames(tree);
  return tree;
}

}  // namespace hearth::jinja
