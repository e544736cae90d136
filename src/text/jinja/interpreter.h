// Evaluates a template's tree.
#pragma once

#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace hearth::jinja {

// The variables of a scope while it is active. Inner frames and macros keep pointers to it.
struct Frame : HeapObject {
  Frame(const Scope& its_scope, Frame* its_outer)
      : scope(its_scope), outer(its_outer), slots(its_scope.slots.size()) {}
  const Scope& scope;
  Frame* const outer;
  Values slots;  // missing where not set
};

enum class Flow : uint8_t { kNormal, kBreak, kContinue };

// One rendering. Lives as long as the values that it made.
class Interpreter {
 public:
  // `context`: a dict with keys of type str. Both outlive the interpreter.
  Interpreter(Runtime& runtime, const TemplateAst& tree, const DictObject& context)
      : runtime_(runtime), tree_(tree), context_(context) {}

  // Throws Failure; runtime.line is the line then.
  Text Run();

  Runtime& runtime() { return runtime_; }
  // For macros, blocks and the loop.
  const TemplateAst& tree() const { return tree_; }
  Text RenderMacro(const MacroBody& macro, Frame* outer, const std::string& name,
                   const Arguments& arguments);
  Text RenderBlock(const BlockStmt& block);
  Text RenderRecursion(const ForStmt& stmt, Frame* outer, const Value& items, int level);

 private:
  // --- statements
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

  // --- variables
  Frame& NewFrame(const Scope& scope, Frame* outer);
  // Gives every slot its first value; parameters are left alone.
  void Enter(Frame& frame);
  static Value& Slot(Frame& frame, SlotRef slot);
  Value LookUp(const Text& name);
  void Assign(const Expr& target, Frame& frame, const Value& value);

  // --- expressions
  Value Evaluate(const Expr& expr, Frame& frame);
  Value EvaluateCompound(const Expr& expr, Frame& frame);
  static Value Constant(const ConstantExpr& expr);
  Value Name(const NameExpr& expr, Frame& frame);
  Value Sequence(const SequenceExpr& expr, Frame& frame);
  Value Dict(const DictExpr& expr, Frame& frame);
  Value Unary(const UnaryExpr& expr, Frame& frame);
  Value BinaryOperation(const BinaryExpr& expr, Frame& frame);
  Value Concat(const ConcatExpr& expr, Frame& frame);
  Value Comparison(const CompareExpr& expr, Frame& frame);
  Value Conditional(const ConditionalExpr& expr, Frame& frame);
  Value SliceOf(const SliceExpr& expr, Frame& frame);
  Value Function(const CallExpr& expr, Frame& frame, const Value* caller);
  Value Filter(const FilterExpr& expr, Frame& frame, const Text* block);
  Value Test(const TestExpr& expr, Frame& frame);
  Arguments EvaluateArguments(const ArgumentExprs& arguments, Frame& frame);

  friend struct ConditionIterator;

  Runtime& runtime_;
  const TemplateAst& tree_;
  const DictObject& context_;
  Frame* root_ = nullptr;  // the template's own
  int blocks_around_ = 0;
  Text* out_ = nullptr;
};

}  // namespace hearth::jinja
