// The user's code that a compile is at: the calls that Dynamo is tracing, or the line an operator came
// from while its graph is traced again or lowered. From locals of torch's own frames:
//   InstructionTranslatorBase.step and .run   self (f_code, lineno), inst (positions): one per call
//   fx.Interpreter.run_node, GraphLowering.run_node   n: a node, meta["stack_trace"]
// The module: nn_module_stack of the translator, or of the node's meta (fwd_nn_module_stack in a backward's graph).
// Read in torch 2.6 to 2.14; tested with 2.13.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "symbolizer/recording/torch_model.h"
#include "user/live/target_view.h"

namespace dynprof {

struct UserLine {
  std::string function;
  std::string file;
  std::int32_t line = 0;  // 0: not known
  bool operator==(const UserLine&) const = default;
};

struct UserCode {
  std::optional<LineUse> use;   // what the compile does with it; none: it is at no user code
  std::vector<UserLine> lines;  // outermost call first
  // The innermost nn.Module that its operator or call is of, by torch's source: "L['self'].blocks.0". "": none, or
  // not known.
  std::string module{};
};

// What was found on a stack, with what is needed to check later that it was still valid when it was read.
struct UserCodeReading {
  UserCode code;
  TargetView::UsedLocals used;
};

UserCodeReading read_user_code(TargetView& view, const RemoteStack& stack);

// The innermost line of code that was not installed, which is what a user can change; else the innermost.
// `packages`: installed ones that are the user's own code, see is_in_package(). `lines` is not empty.
const UserLine& own_line(const std::vector<UserLine>& lines,
                         const std::vector<std::string>& packages);

// The calls of a text as traceback.format_list makes it, outermost first.
std::vector<UserLine> parse_stack_trace(std::string_view text);

}  // namespace dynprof
