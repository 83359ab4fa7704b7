// What the parser makes of a template: statements and expressions as trees of limited height, with names
// interned. Immutable once parsed, so one program can be rendered by several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace qgen::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;
struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

enum class ExprKind : uint8_t {
  kConstant,     // constant
  kName,         // name
  kTuple,        // children
  kList,         // children
  kDict,         // children: key, value, key, value, …
  kUnary,        // op, children[0]
  kBinary,       // op, children[0], children[1]
  kConcat,       // children
  kCompare,      // children[0] ops[0] children[1] ops[1] …
  kAnd,          // children[0], children[1]
  kOr,           // children[0], children[1]
  kConditional,  // children: test, then, else (may be missing)
  kAttribute,    // children[0].text
  kItem,         // children[0][children[1]]
  kSlice,        // children: start, stop, step (each may be null); only below kItem
  kCall,         // children[0](arguments)
  kFilter,       // children[0] | text(arguments); children[0] is null at the head of a filter block
  kTest,         // children[0] is text(arguments)
};

enum class Op : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kNegative,
  kPositive,
  kNot,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;       // *list
  ExprPtr star_star;  // **dict
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  Op op = Op::kAdd;
  uint32_t offset = 0;  // in the source
  int height = 1;
  int name = -1;
  Value constant;
  std::string text;
  std::vector<Op> ops;
  std::vector<ExprPtr> children;
  CallArguments arguments;
};

enum class StmtKind : uint8_t {
  kText,         // text
  kOutput,       // expr
  kFor,          // target, expr, test, recursive, body, otherwise
  kIf,           // branches, otherwise
  kSet,          // target = expr
  kSetBlock,     // target, expr (a filter chain or null), body
  kMacro,        // name, parameters, body, uses_*
  kCallBlock,    // expr (a call); callee (a macro for `caller`)
  kFilterBlock,  // expr (a filter chain), body
  kWith,         // targets and values, body
  kScope,        // body in a scope of its own
  kBreak,
  kContinue,
};

// What can be assigned to: a name, an attribute of a namespace, or a tuple of those.
struct Target {
  int name = -1;
  std::string attribute;  // of the namespace `name`, if not empty
  bool is_tuple = false;
  std::vector<Target> elements;
  uint32_t offset = 0;
};

struct Parameter {
  int name = -1;
  ExprPtr fallback;  // null if it has none
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  uint32_t offset = 0;
  TextPtr text;
  ExprPtr expr;
  ExprPtr test;
  bool recursive = false;
  Target target;
  Body body;
  Body otherwise;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<Target, ExprPtr>> assignments;
  std::string macro_name;
  int name = -1;
  std::vector<Parameter> parameters;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  StmtPtr callee;
};

// Names as small numbers, for quick look-up.
class Names {
 public:
  int intern(const std::string& name) {
    const auto [it, added] = ids_.emplace(name, static_cast<int>(names_.size()));
    if (added) names_.push_back(name);
    return it->second;
  }
  int find(const std::string& name) const {
    const auto it = ids_.find(name);
    return it == ids_.end() ? -1 : it->second;
  }
  const std::string& operator[](int id) const { return names_[static_cast<size_t>(id)]; }

 private:
  std::unordered_map<std::string, int> ids_;
  std::vector<std::string> names_;
};

struct Syntax {
  Body body;
  Names names;
  std::vector<bool> read;  // by name: whether the template reads it somewhere
};

}  // namespace qgen::jinja
