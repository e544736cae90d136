// A parsed template: statements and expressions as a tree.
//
// The parser builds it; the resolver fills in where names live (Scope, NameExpr::slot); after that
// it is constant and may be used by several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/values/numbers.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/text.h"
#include "text/jinja/values/value.h"

namespace hearth::jinja {

// --- names

// A variable: `index` in the frame that is `hops` frames further out.
struct SlotRef {
  int hops = 0;
  int index = 0;
};

// The variables of one frame, and what each is when the frame is entered.
struct Scope {
  enum class Start : uint8_t {
    kParameter,  // whoever enters sets it
    kContext,    // looked up in the context
    kOuter,      // as in an outer frame
    kMissing,    // undefined until it is set
  };
  struct Slot {
    Text name;
    Start start = Start::kParameter;
    SlotRef outer;  // kOuter
  };
  std::vector<Slot> slots;
};

// --- expressions

enum class ExprKind : uint8_t {
  kConstant,
  kName,
  kSequence,
  kDict,
  kUnary,
  kBinary,
  kConcat,
  kCompare,
  kConditional,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
};

struct Expr {
  Expr(ExprKind its_kind, int its_line) : kind(its_kind), line(its_line) {}
  virtual ~Expr() = default;
  const ExprKind kind;
  const int line;
  int depth = 1;  // of the tree below
};
using ExprPtr = std::unique_ptr<Expr>;

struct ConstantExpr : Expr {
  explicit ConstantExpr(int at_line) : Expr(ExprKind::kConstant, at_line) {}
  // monostate: none. Renderings share the texts.
  std::variant<std::monostate, bool, Int, double, std::unique_ptr<const StringObject>> value;
};

// Read or, as a target, written. With an attribute, a target "name.attribute" of a namespace.
struct NameExpr : Expr {
  explicit NameExpr(int at_line) : Expr(ExprKind::kName, at_line) {}
  Text name;
  Text attribute;
  SlotRef slot;
};

struct SequenceExpr : Expr {  // [a, b] or (a, b); also a target
  explicit SequenceExpr(int at_line) : Expr(ExprKind::kSequence, at_line) {}
  bool is_tuple = false;
  std::vector<ExprPtr> items;
};

struct DictExpr : Expr {
  explicit DictExpr(int at_line) : Expr(ExprKind::kDict, at_line) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
};

enum class UnaryOp : uint8_t { kNot, kNegative, kPositive };

struct UnaryExpr : Expr {
  explicit UnaryExpr(int at_line) : Expr(ExprKind::kUnary, at_line) {}
  UnaryOp op = UnaryOp::kNot;
  ExprPtr operand;
};

struct BinaryExpr : Expr {
  explicit BinaryExpr(int at_line) : Expr(ExprKind::kBinary, at_line) {}
  BinaryOp op = BinaryOp::kAnd;
  ExprPtr left;
  ExprPtr right;
};

struct ConcatExpr : Expr {  // a ~ b ~ c
  explicit ConcatExpr(int at_line) : Expr(ExprKind::kConcat, at_line) {}
  std::vector<ExprPtr> parts;
};

struct CompareExpr : Expr {  // a < b <= c
  explicit CompareExpr(int at_line) : Expr(ExprKind::kCompare, at_line) {}
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};

struct ConditionalExpr : Expr {  // a if test else b
  explicit ConditionalExpr(int at_line) : Expr(ExprKind::kConditional, at_line) {}
  ExprPtr test;
  ExprPtr then;
  ExprPtr otherwise;  // may be null: undefined
};

struct AttributeExpr : Expr {  // a.name
  explicit AttributeExpr(int at_line) : Expr(ExprKind::kAttribute, at_line) {}
  ExprPtr object;
  Text name;
};

struct ItemExpr : Expr {  // a[key]
  explicit ItemExpr(int at_line) : Expr(ExprKind::kItem, at_line) {}
  ExprPtr object;
  ExprPtr key;
};

struct SliceExpr : Expr {  // a[start:stop:step], each may be null
  explicit SliceExpr(int at_line) : Expr(ExprKind::kSlice, at_line) {}
  ExprPtr object;
  ExprPtr start;
  ExprPtr stop;
  ExprPtr step;
};

struct ArgumentExprs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<Text, ExprPtr>> keywords;
  ExprPtr more_positional;  // *list, may be null
  ExprPtr more_keywords;    // **dict, may be null
};

struct CallExpr : Expr {
  explicit CallExpr(int at_line) : Expr(ExprKind::kCall, at_line) {}
  ExprPtr callee;
  ArgumentExprs arguments;
};

struct FilterExpr : Expr {  // value | name(arguments)
  explicit FilterExpr(int at_line) : Expr(ExprKind::kFilter, at_line) {}
  ExprPtr operand;  // null in a filter block: what the block wrote
  std::string name;
  ArgumentExprs arguments;
};

struct TestExpr : Expr {  // value is name(arguments)
  explicit TestExpr(int at_line) : Expr(ExprKind::kTest, at_line) {}
  ExprPtr operand;
  std::string name;
  ArgumentExprs arguments;
};

// --- statements

enum class StmtKind : uint8_t {
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kBlock,
  kGeneration,
  kAutoEscape,
  kOtherTemplate,
  kBreak,
  kContinue,
};

struct Stmt {
  Stmt(StmtKind its_kind, int its_line) : kind(its_kind), line(its_line) {}
  virtual ~Stmt() = default;
  const StmtKind kind;
  const int line;
};
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct OutputStmt : Stmt {
  explicit OutputStmt(int at_line) : Stmt(StmtKind::kOutput, at_line) {}
  std::vector<std::variant<Text, ExprPtr>> parts;
};

struct IfStmt : Stmt {
  explicit IfStmt(int at_line) : Stmt(StmtKind::kIf, at_line) {}
  std::vector<std::pair<ExprPtr, Body>> branches;  // if, elif, ...
  Body otherwise;
};

struct ForStmt : Stmt {
  explicit ForStmt(int at_line) : Stmt(StmtKind::kFor, at_line) {}
  ExprPtr target;
  ExprPtr items;
  ExprPtr condition;  // may be null
  bool recursive = false;
  Body body;
  Body otherwise;
  Scope body_scope;       // the target's names first
  Scope condition_scope;  // the same names at the same places first
  Scope otherwise_scope;
  int loop_slot = 0;  // of `loop`, in body_scope
};

struct SetStmt : Stmt {
  explicit SetStmt(int at_line) : Stmt(StmtKind::kSet, at_line) {}
  ExprPtr target;
  ExprPtr value;
};

struct SetBlockStmt : Stmt {
  explicit SetBlockStmt(int at_line) : Stmt(StmtKind::kSetBlock, at_line) {}
  ExprPtr target;
  ExprPtr filter;  // FilterExpr over the body, may be null
  Body body;
  Scope scope;
};

// What a macro and the body of a call block have in common.
struct MacroBody {
  std::vector<std::unique_ptr<NameExpr>> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  Scope scope;  // the parameters first, then those of these three that the body uses
  bool uses_caller = false;
  bool uses_kwargs = false;
  bool uses_varargs = false;
  SlotRef caller, kwargs, varargs;
};

struct MacroStmt : Stmt {
  explicit MacroStmt(int at_line) : Stmt(StmtKind::kMacro, at_line) {}
  std::unique_ptr<NameExpr> target;
  MacroBody macro;
};

struct CallBlockStmt : Stmt {
  explicit CallBlockStmt(int at_line) : Stmt(StmtKind::kCallBlock, at_line) {}
  std::unique_ptr<CallExpr> call;
  MacroBody caller;
};

struct FilterBlockStmt : Stmt {
  explicit FilterBlockStmt(int at_line) : Stmt(StmtKind::kFilterBlock, at_line) {}
  ExprPtr filter;
  Body body;
  Scope scope;
};

struct WithStmt : Stmt {
  explicit WithStmt(int at_line) : Stmt(StmtKind::kWith, at_line) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> assignments;  // target, value
  Body body;
  Scope scope;
};

struct BlockStmt : Stmt {  // a block of a template that nobody extends: a frame of its own
  explicit BlockStmt(int at_line) : Stmt(StmtKind::kBlock, at_line) {}
  Text name;
  bool scoped = false;
  Body body;
  Scope scope;
};

struct GenerationStmt : Stmt {  // {% generation %}: marks what a trainer learns
  explicit GenerationStmt(int at_line) : Stmt(StmtKind::kGeneration, at_line) {}
  Body body;
  Scope scope;
};

struct AutoEscapeStmt : Stmt {  // {% autoescape false %}
  explicit AutoEscapeStmt(int at_line) : Stmt(StmtKind::kAutoEscape, at_line) {}
  ExprPtr escapes;
  Body body;
  Scope scope;
};

// A tag about another template. A model has only one, so that it fails where it is reached.
struct OtherTemplateStmt : Stmt {
  explicit OtherTemplateStmt(int at_line) : Stmt(StmtKind::kOtherTemplate, at_line) {}
  std::string tag;  // "include", "import", ...
  ExprPtr other;
  std::vector<std::unique_ptr<NameExpr>> imported;  // names that it would set
};

struct JumpStmt : Stmt {
  JumpStmt(StmtKind its_kind, int at_line) : Stmt(its_kind, at_line) {}
};

struct TemplateAst {
  Body body;
  Scope scope;
  std::vector<const BlockStmt*> blocks;  // wherever they stand in the body
};

}  // namespace hearth::jinja
