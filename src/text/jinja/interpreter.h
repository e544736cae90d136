// Renders a template's tree, statement by statement.
#pragma once

#include <string>

#include "text/jinja/evaluator.h"
#include "text/jinja/syntax/ast.h"
#include "text/jinja/values/runtime.h"
#include "text/jinja/values/value.h"
#include "text/jinja/variables.h"

namespace hearth::jinja {

enum class Flow : uint8_t { kNormal, kBreak, kContinue };

// One rendering. Lives as long as the values that it made.
class Interpreter {
 public:
  // `context`: a dict with keys of type str. Both outlive the interpreter.
  Interpreter(Runtime& runtime, const TemplateAst& tree, const DictObject& context)
      : runtime_(runtime), tree_(tree), variables_(runtime, *this, context), evaluator_(runtime) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Throws Failure; runtime.line is the line then.
  Text Run();

  // For macros, blocks and the loop.
  const TemplateAst& tree() const { return tree_; }
  Text RenderMacro(const MacroBody& macro, Frame* outer, const std::string& name,
                   const Arguments& arguments);
  Text RenderBlock(const BlockStmt& block);
  Text RenderRecursion(const ForStmt& stmt, Frame* outer, const Value& items, int level);

 private:
  Flow ExecuteBody(const Body& body, Frame& frame);
  Flow Execute(const Stmt& stmt, Frame& frame);
  void Output(const OutputStmt& stmt, Frame& frame);
  Flow If(const IfStmt& stmt, Frame& frame);
  Flow For(const ForStmt& stmt, Frame& frame, const Value& items, int level);
  void Block(const BlockStmt& stmt, Frame* outer);
  Flow FilterBlock(const FilterBlockStmt& stmt, Frame& frame);
  void Set(const SetStmt& stmt, Frame& frame);
  Flow SetBlock(const SetBlockStmt& stmt, Frame& frame);
  Flow With(const WithStmt& stmt, Frame& frame);
  Flow Generation(const GenerationStmt& stmt, Frame& frame);
  Flow AutoEscape(const AutoEscapeStmt& stmt, Frame& frame);
  void DefineMacro(const MacroStmt& stmt, Frame& frame);
  void CallBlock(const CallBlockStmt& stmt, Frame& frame);
  void Write(const Text& text);
  void WriteString(const Value& value);  // a str
  // What `run` writes, instead of the output.
  template <typename RunFn>
  Text Capture(RunFn run);
  void BindParameters(const MacroBody& macro, Frame& frame, const std::string& name,
                      const Arguments& arguments);

  Runtime& runtime_;
  const TemplateAst& tree_;
  Variables variables_;
  Evaluator evaluator_;
  Text* out_ = nullptr;
};

}  // namespace hearth::jinja
