// Which frame each name belongs to.
//
// Frames are what Jinja's compiler makes them: the template, the body of a loop, of a macro, of a
// call, filter, set or with block; not the branches of an "if". For each, all names of its own
// statements are collected first (not those inside of inner frames), in the order of the text. A
// name that is set before it is read begins as the outer frame's of that name, or undefined where
// none has it; a name that is only read, or set in one branch only, belongs to the innermost frame
// around that knows it, or begins with the context's value.
#include <utility>
#include <vector>

#include "text/jinja/syntax/parser.h"
#include "text/jinja/syntax/symbols.h"
#include "text/jinja/syntax/visit.h"

namespace hearth::jinja {
namespace {

// --- collecting

void CollectReads(Expr* expr, Symbols& symbols) {
  if (expr == nullptr) return;
  if (expr->kind == ExprKind::kName) symbols.Load(static_cast<NameExpr*>(expr)->name);
  VisitParts(*expr, [&](Expr* part) { CollectReads(part, symbols); });
}

enum class TargetUse { kStore, kParameter };

void CollectTarget(Expr* target, Symbols& symbols, TargetUse use) {
  if (target->kind == ExprKind::kName) {
    const auto& name = static_cast<const NameExpr&>(*target);
    if (!name.attribute.empty()) {
      symbols.Load(name.name);
    } else if (use == TargetUse::kParameter) {
      symbols.Parameter(name.name);
    } else {
      symbols.Store(name.name);
    }
    return;
  }
  VisitParts(*target, [&](Expr* part) { CollectTarget(part, symbols, use); });
}

void CollectBody(const Body& body, Symbols& symbols);

void CollectIf(const IfStmt& stmt, size_t branch, Symbols& symbols) {
  // An "elif" is an "if" in the else of the one before, for the names.
  CollectReads(stmt.branches[branch].first.get(), symbols);
  std::vector<std::vector<NameState>> states;
  symbols.BeginBranches();
  CollectBody(stmt.branches[branch].second, symbols);
  states.push_back(symbols.TakeStates());
  if (branch == 0) {
    for (size_t i = 1; i < stmt.branches.size(); ++i) CollectIf(stmt, i, symbols);
    states.push_back(symbols.TakeStates());
    CollectBody(stmt.otherwise, symbols);
    states.push_back(symbols.TakeStates());
  }
  symbols.EndBranches(states);
}

void CollectOutput(const OutputStmt& stmt, Symbols& symbols) {
  for (const auto& part : stmt.parts) {
    if (const auto* expr = std::get_if<ExprPtr>(&part)) CollectReads(expr->get(), symbols);
  }
}

// The names that the statement itself uses in its frame.
void CollectStmt(const Stmt& stmt, Symbols& symbols) {
  switch (stmt.kind) {
    case StmtKind::kOutput:
      return CollectOutput(static_cast<const OutputStmt&>(stmt), symbols);
    case StmtKind::kIf:
      return CollectIf(static_cast<const IfStmt&>(stmt), 0, symbols);
    case StmtKind::kFor:
      return CollectReads(static_cast<const ForStmt&>(stmt).items.get(), symbols);
    case StmtKind::kSet:
      CollectReads(static_cast<const SetStmt&>(stmt).value.get(), symbols);
      return CollectTarget(static_cast<const SetStmt&>(stmt).target.get(), symbols,
                           TargetUse::kStore);
    case StmtKind::kSetBlock:
      return CollectTarget(static_cast<const SetBlockStmt&>(stmt).target.get(), symbols,
                           TargetUse::kStore);
    case StmtKind::kMacro:
      return symbols.Store(static_cast<const MacroStmt&>(stmt).target->name);
    case StmtKind::kOtherTemplate:
      CollectReads(static_cast<const OtherTemplateStmt&>(stmt).other.get(), symbols);
      for (const auto& name : static_cast<const OtherTemplateStmt&>(stmt).imported) {
        symbols.Store(name->name);
      }
      return;
    case StmtKind::kCallBlock:
      return CollectReads(static_cast<const CallBlockStmt&>(stmt).call.get(), symbols);
    case StmtKind::kFilterBlock:
      return CollectReads(static_cast<const FilterBlockStmt&>(stmt).filter.get(), symbols);
    case StmtKind::kWith:
      for (const auto& assignment : static_cast<const WithStmt&>(stmt).assignments) {
        CollectReads(assignment.second.get(), symbols);
      }
      return;
    case StmtKind::kBlock:
    case StmtKind::kGeneration:
    case StmtKind::kAutoEscape:
    case StmtKind::kBreak:
    case StmtKind::kContinue:
      return;
  }
}

void CollectBody(const Body& body, Symbols& symbols) {
  for (const StmtPtr& stmt : body) CollectStmt(*stmt, symbols);
}

// --- binding

void BindExpr(Expr* expr, const Symbols& symbols) {
  if (expr == nullptr) return;
  if (expr->kind == ExprKind::kName) {
    auto& name = static_cast<NameExpr&>(*expr);
    name.slot = symbols.Find(name.name);
  }
  VisitParts(*expr, [&](Expr* part) { BindExpr(part, symbols); });
}

void BindBody(Body& body, Symbols& symbols);

// A frame whose names are those of `body`, after what `declare` declares.
template <typename Declare>
void BindFrame(Body& body, Scope& scope, Symbols* parent, Declare declare) {
  Symbols symbols(parent, scope);
  declare(symbols);
  CollectBody(body, symbols);
  BindBody(body, symbols);
  symbols.Finish();
}

void BindMacro(MacroBody& macro, Symbols* parent) {
  Symbols symbols(parent, macro.scope);
  for (const auto& parameter : macro.parameters) symbols.Parameter(parameter->name);
  for (const ExprPtr& value : macro.defaults) CollectReads(value.get(), symbols);
  CollectBody(macro.body, symbols);
  const auto special = [&](bool uses, const char* name, SlotRef& slot) {
    if (uses) slot = {0, symbols.Parameter(Own(name))};
  };
  special(macro.uses_caller, "caller", macro.caller);
  special(macro.uses_kwargs, "kwargs", macro.kwargs);
  special(macro.uses_varargs, "varargs", macro.varargs);
  for (const auto& parameter : macro.parameters) BindExpr(parameter.get(), symbols);
  for (const ExprPtr& value : macro.defaults) BindExpr(value.get(), symbols);
  BindBody(macro.body, symbols);
  symbols.Finish();
}

void BindFor(ForStmt& stmt, Symbols& symbols) {
  BindExpr(stmt.items.get(), symbols);
  BindFrame(stmt.body, stmt.body_scope, &symbols, [&](Symbols& frame) {
    CollectTarget(stmt.target.get(), frame, TargetUse::kParameter);
    stmt.loop_slot = frame.Parameter(Own("loop"));
    BindExpr(stmt.target.get(), frame);
  });
  if (stmt.condition != nullptr) {
    Symbols frame(&symbols, stmt.condition_scope);
    CollectTarget(stmt.target.get(), frame, TargetUse::kParameter);
    CollectReads(stmt.condition.get(), frame);
    BindExpr(stmt.condition.get(), frame);
    frame.Finish();
  }
  BindFrame(stmt.otherwise, stmt.otherwise_scope, &symbols, [](Symbols&) {});
}

void BindSetBlock(SetBlockStmt& stmt, Symbols& symbols) {
  BindExpr(stmt.target.get(), symbols);
  BindFrame(stmt.body, stmt.scope, &symbols, [&](Symbols& frame) {
    CollectReads(stmt.filter.get(), frame);
    BindExpr(stmt.filter.get(), frame);
  });
}

void BindFilterBlock(FilterBlockStmt& stmt, Symbols& symbols) {
  Symbols frame(&symbols, stmt.scope);
  CollectBody(stmt.body, frame);
  CollectReads(stmt.filter.get(), frame);
  BindExpr(stmt.filter.get(), frame);
  BindBody(stmt.body, frame);
  frame.Finish();
}

void BindWith(WithStmt& stmt, Symbols& symbols) {
  for (auto& assignment : stmt.assignments) BindExpr(assignment.second.get(), symbols);
  BindFrame(stmt.body, stmt.scope, &symbols, [&](Symbols& frame) {
    for (auto& assignment : stmt.assignments) {
      CollectTarget(assignment.first.get(), frame, TargetUse::kParameter);
    }
    for (auto& assignment : stmt.assignments) BindExpr(assignment.first.get(), frame);
  });
}

void BindFlat(Stmt& stmt, Symbols& symbols) {
  if (stmt.kind == StmtKind::kOutput) {
    for (auto& part : static_cast<OutputStmt&>(stmt).parts) {
      if (auto* expr = std::get_if<ExprPtr>(&part)) BindExpr(expr->get(), symbols);
    }
  } else if (stmt.kind == StmtKind::kIf) {
    for (auto& [test, body] : static_cast<IfStmt&>(stmt).branches) {
      BindExpr(test.get(), symbols);
      BindBody(body, symbols);
    }
    BindBody(static_cast<IfStmt&>(stmt).otherwise, symbols);
  } else if (stmt.kind == StmtKind::kSet) {
    BindExpr(static_cast<SetStmt&>(stmt).target.get(), symbols);
    BindExpr(static_cast<SetStmt&>(stmt).value.get(), symbols);
  }
}

void BindStmt(Stmt& stmt, Symbols& symbols) {
  const auto no_parameters = [](Symbols&) {};
  switch (stmt.kind) {
    case StmtKind::kFor:
      return BindFor(static_cast<ForStmt&>(stmt), symbols);
    case StmtKind::kSetBlock:
      return BindSetBlock(static_cast<SetBlockStmt&>(stmt), symbols);
    case StmtKind::kMacro:
      BindExpr(static_cast<MacroStmt&>(stmt).target.get(), symbols);
      return BindMacro(static_cast<MacroStmt&>(stmt).macro, &symbols);
    case StmtKind::kCallBlock:
      BindExpr(static_cast<CallBlockStmt&>(stmt).call.get(), symbols);
      return BindMacro(static_cast<CallBlockStmt&>(stmt).caller, &symbols);
    case StmtKind::kFilterBlock:
      return BindFilterBlock(static_cast<FilterBlockStmt&>(stmt), symbols);
    case StmtKind::kWith:
      return BindWith(static_cast<WithStmt&>(stmt), symbols);
    case StmtKind::kGeneration: {
      auto& generation = static_cast<GenerationStmt&>(stmt);
      return BindFrame(generation.body, generation.scope, &symbols, no_parameters);
    }
    case StmtKind::kAutoEscape: {
      auto& escape = static_cast<AutoEscapeStmt&>(stmt);
      return BindFrame(escape.body, escape.scope, &symbols, [&](Symbols& frame) {
        CollectReads(escape.escapes.get(), frame);
        BindExpr(escape.escapes.get(), frame);
      });
    }
    case StmtKind::kBlock: {
      auto& block = static_cast<BlockStmt&>(stmt);
      Symbols* const around = block.scoped ? &symbols : nullptr;
      return BindFrame(block.body, block.scope, around, no_parameters);
    }
    default:
      return BindFlat(stmt, symbols);
  }
}

void BindBody(Body& body, Symbols& symbols) {
  for (StmtPtr& stmt : body) BindStmt(*stmt, symbols);
}

}  // namespace

void ResolveNames(TemplateAst& tree) {
  BindFrame(tree.body, tree.scope, nullptr, [](Symbols&) {});
}

}  // namespace hearth::jinja
