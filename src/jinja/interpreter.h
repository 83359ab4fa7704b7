// Runs a parsed template. One interpreter serves one rendering; everything it makes belongs to its heap.
// The built-in functions, filters, tests and methods get it as their way to call each other.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/heap.h"
#include "jinja/node.h"

namespace qgen::jinja {

// Variables of one block; the program's names lead to values. Found again by the macros that close over it.
struct Scope : Object {
  Scope* parent = nullptr;
  bool captured = false;
  std::vector<std::pair<int, Value>> variables;
};

class Interpreter {
 public:
  // `now`: seconds since 1970 for strftime_now.
  Interpreter(const Syntax& syntax, const Limits& limits, long long now);

  Heap& heap() { return heap_; }
  long long now() const { return now_; }
  void define(const std::string& name, Value value);
  // The whole output.
  Text run();
  // Where in the source the interpreter is.
  uint32_t offset() const { return offset_; }

  Value call(const Value& callee, Arguments& arguments);
  Value filter(std::string_view name, const Value& value, Arguments& arguments);
  bool test(std::string_view name, const Value& value, Arguments& arguments);
  // object.name, and object[key], each with the other as its fallback.
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  // A method or property of the object itself, not an entry of a dict.
  std::optional<Value> own_attribute(const Value& object, std::string_view name);

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class ScopeGuard;

  Flow run_body(const Body& body, Scope* scope, TextBuilder& out);
  Flow run_statement(const Stmt& stmt, Scope* scope, TextBuilder& out);
  Flow run_if(const Stmt& stmt, Scope* scope, TextBuilder& out);
  Flow run_for(const Stmt& stmt, const Value& iterable, Scope* scope, int depth, TextBuilder& out);
  void run_output(const Stmt& stmt, Scope* scope, TextBuilder& out);
  void run_set_block(const Stmt& stmt, Scope* scope);
  void run_call_block(const Stmt& stmt, Scope* scope, TextBuilder& out);
  void run_filter_block(const Stmt& stmt, Scope* scope, TextBuilder& out);
  void run_with(const Stmt& stmt, Scope* scope, TextBuilder& out);
  Value run_to_text(const Body& body, Scope* scope);
  void assign(const Target& target, const Value& value, Scope* scope);
  void append(TextBuilder& out, const Value& value);

  Value eval(const Expr& expr, Scope* scope);
  Value eval_name(const Expr& expr, Scope* scope);
  Value eval_items(const Expr& expr, Scope* scope);
  Value eval_dict(const Expr& expr, Scope* scope);
  Value eval_unary(const Expr& expr, Scope* scope);
  Value eval_binary(const Expr& expr, Scope* scope);
  Value eval_concat(const Expr& expr, Scope* scope);
  Value eval_compare(const Expr& expr, Scope* scope);
  Value eval_conditional(const Expr& expr, Scope* scope);
  Value eval_attribute(const Expr& expr, Scope* scope);
  Value eval_item(const Expr& expr, Scope* scope);
  Value eval_call(const Expr& expr, Scope* scope, const Value* caller);
  Value eval_filter(const Expr& expr, Scope* scope, const Value* head);
  Value eval_test(const Expr& expr, Scope* scope);
  Arguments eval_arguments(const CallArguments& arguments, Scope* scope);

  Value make_macro(const Stmt& stmt, Scope* scope);
  Value call_macro(const Function& macro, Arguments& arguments);
  Value call_loop(Loop& loop, Arguments& arguments);
  Value loop_attribute(Loop& loop, std::string_view name);
  Scope* new_scope(Scope* parent);
  void release(Scope* scope);
  void set_variable(Scope* scope, int name, Value value);
  const Value* lookup(int name, Scope* scope);

  const Syntax& syntax_;
  Heap heap_;
  long long now_;
  uint32_t offset_ = 0;
  int calls_ = 0;
  int loop_name_ = -1, caller_name_ = -1, varargs_name_ = -1, kwargs_name_ = -1;
  Scope* root_ = nullptr;
  std::vector<Scope*> free_scopes_;
};

}  // namespace qgen::jinja
