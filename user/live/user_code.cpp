#include "user/live/user_code.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "symbolizer/attribution/user_packages.h"
#include "user/target/fx_node.h"

namespace dynprof {
namespace {

constexpr std::string_view kSymbolicConvert = "torch/_dynamo/symbolic_convert.py";
constexpr std::string_view kOutputGraph = "torch/_dynamo/output_graph.py";
constexpr std::string_view kConvertFrame = "torch/_dynamo/convert_frame.py";
constexpr std::string_view kInterpreter = "torch/fx/interpreter.py";
constexpr std::string_view kLowering = "torch/_inductor/graph.py";

constexpr std::size_t kMaxInlined = 256;
constexpr std::size_t kMaxStackTrace = 65'536;  // characters
constexpr std::size_t kMaxTraceLines = 64;
constexpr std::size_t kMaxModules = 256;  // inside each other
constexpr std::size_t kMaxModuleName = 512;

class Reader {
 public:
  Reader(TargetView& view, const RemoteStack& stack) : view_(view), stack_(stack) {}

  UserCodeReading read() {
    for (std::size_t depth = 1; depth <= stack_.frames.size(); ++depth) {
      depth_ = depth;
      at(stack_.frames[stack_.frames.size() - depth]);
    }
    if (found_.code.use == LineUse::kTracing && last_translator_ != 0)
      found_.code.module = module_of(view_.values.attribute(last_translator_, "nn_module_stack"));
    if (found_.code.use == LineUse::kGraphEnd) found_.code.module.clear();
    return std::move(found_);
  }

 private:
  void at(const StackFrame& frame) {
    bool step = view_.is_function(frame, kSymbolicConvert, "InstructionTranslatorBase.step");
    if (step || view_.is_function(frame, kSymbolicConvert, "InstructionTranslatorBase.run")) {
      translator(frame, step);
    } else if (view_.is_function(frame, kOutputGraph, "OutputGraph.compile_subgraph")) {
      if (found_.code.use == LineUse::kTracing) found_.code.use = LineUse::kGraphEnd;
    } else if (view_.is_function(frame, kConvertFrame, "_compile") ||
               view_.is_function(frame, kConvertFrame, "compile_frame")) {
      found_ = {};  // a compile inside another one
      last_translator_ = 0;
    } else if (view_.is_function(frame, kLowering, "GraphLowering.run_node")) {
      node(frame, LineUse::kLowering);
    } else if (view_.is_function(frame, kInterpreter, "Interpreter.run_node")) {
      // While Dynamo traces, this is how it propagates shapes. GraphLowering's is made of it.
      if (found_.code.use == LineUse::kTracing) return;
      node(frame, found_.code.use == LineUse::kLowering ? LineUse::kLowering : LineUse::kRetracing);
    }
  }

  void used(const TargetView::Local& local) { found_.used.add(local, depth_); }

  // One per call that is traced, twice or three times on the stack: run, step, and run again for a
  // generator.
  void translator(const StackFrame& frame, bool step) {
    auto self = view_.local(frame, "self");
    if (!self || !view_.values.is_a(self->value, "InstructionTranslatorBase")) return;
    if (self->value != last_translator_) {
      auto line = function_of(self->value);
      if (!line || found_.code.lines.size() == kMaxInlined) return;
      last_translator_ = self->value;
      // What a node inside an outer call said is of that call.
      if (found_.code.use != LineUse::kTracing) found_.code.lines.clear();
      found_.code.use = LineUse::kTracing;
      found_.code.lines.push_back(std::move(*line));
    }
    used(*self);
    if (!step) return;
    auto instruction = view_.local(frame, "inst");
    if (!instruction) return;
    used(*instruction);
    if (auto line = line_of(instruction->value)) found_.code.lines.back().line = *line;
  }

  // The function of a translator, and the line it was at last.
  std::optional<UserLine> function_of(std::uint64_t translator) {
    auto code = view_.values.attribute(translator, "f_code");
    if (!code) return std::nullopt;
    RemoteCode read = view_.names.reader().read(*code);
    if (read.unreadable != Unreadable::kNo) return std::nullopt;
    UserLine line{std::move(read.qualname), std::move(read.filename), 0};
    auto number = view_.values.attribute(translator, "lineno");
    line.line = number ? positive(view_.values.read_int(*number)) : 0;
    return line;
  }

  // Of an Instruction: its positions (3.11 and later), else the line that begins with it.
  std::optional<std::int32_t> line_of(std::uint64_t instruction) {
    if (!view_.values.is_a(instruction, "Instruction")) return std::nullopt;
    auto positions = view_.values.attribute(instruction, "positions");
    auto parts = positions ? view_.values.tuple_items(*positions, 8) : std::nullopt;
    auto number = parts && !parts->empty() ? std::optional(parts->front())
                                           : view_.values.attribute(instruction, "starts_line");
    std::int32_t line = number ? positive(view_.values.read_int(*number)) : 0;
    return line > 0 ? std::optional(line) : std::nullopt;
  }

  static std::int32_t positive(std::optional<std::int64_t> number) {
    return number && *number > 0 && *number <= INT32_MAX ? static_cast<std::int32_t>(*number) : 0;
  }

  // {key: (source, class)}, outermost first.
  std::string module_of(std::optional<std::uint64_t> stack) {
    auto modules = stack ? view_.values.dict_items(*stack, kMaxModules) : std::nullopt;
    if (!modules || modules->empty()) return {};
    auto parts = view_.values.tuple_items(modules->back().value, 2);
    if (!parts || parts->empty()) return {};
    return view_.values.read_str(parts->front(), kMaxModuleName).value_or(std::string());
  }

  void node(const StackFrame& frame, LineUse kind) {
    auto node = view_.local(frame, "n");
    if (!node) return;
    auto meta = FxNodeReader(view_.values).attribute(node->value, "meta");
    auto text = meta ? view_.objects.dict_get(*meta, "stack_trace") : std::nullopt;
    auto trace = text ? view_.values.read_str(*text, kMaxStackTrace) : std::nullopt;
    if (!trace) return;
    std::vector<UserLine> lines = parse_stack_trace(*trace);
    if (lines.empty()) return;
    found_.code.use = kind;
    found_.code.lines = std::move(lines);
    auto modules = view_.objects.dict_get(*meta, "nn_module_stack");
    if (!modules) modules = view_.objects.dict_get(*meta, "fwd_nn_module_stack");
    found_.code.module = module_of(modules);
    used(*node);
  }

  TargetView& view_;
  const RemoteStack& stack_;
  std::size_t depth_ = 0;  // of the frame that is looked at, from the root
  std::uint64_t last_translator_ = 0;
  UserCodeReading found_;
};

}  // namespace

UserCodeReading read_user_code(TargetView& view, const RemoteStack& stack) {
  return Reader(view, stack).read();
}

const UserLine& own_line(const std::vector<UserLine>& lines,
                         const std::vector<std::string>& packages) {
  auto own = std::find_if(lines.rbegin(), lines.rend(), [&](const UserLine& line) {
    return (line.file.find("/site-packages/") == std::string::npos &&
            line.file.find("/dist-packages/") == std::string::npos) ||
           is_in_package(line.file, packages);
  });
  return own != lines.rend() ? *own : lines.back();
}

std::vector<UserLine> parse_stack_trace(std::string_view text) {
  constexpr std::string_view kFile = "  File \"";
  constexpr std::string_view kLine = "\", line ";
  constexpr std::string_view kIn = ", in ";
  std::vector<UserLine> lines;
  while (!text.empty()) {
    std::size_t end = text.find('\n');
    std::string_view row = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (!row.starts_with(kFile)) continue;
    row.remove_prefix(kFile.size());
    std::size_t quote = row.rfind(kLine);
    if (quote == std::string_view::npos) continue;
    UserLine line;
    line.file = row.substr(0, quote);
    row.remove_prefix(quote + kLine.size());
    auto [rest, failure] = std::from_chars(row.data(), row.data() + row.size(), line.line);
    if (failure != std::errc() || line.line <= 0) continue;
    row.remove_prefix(static_cast<std::size_t>(rest - row.data()));
    if (row.starts_with(kIn)) line.function = row.substr(kIn.size());
    if (lines.size() == kMaxTraceLines) lines.erase(lines.begin());
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace dynprof
