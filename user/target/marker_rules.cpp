#include "user/target/marker_rules.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "symbolizer/python/line_table.h"
#include "user/target/remote_values.h"

namespace dynprof {
namespace {

constexpr std::string_view kConvertFrame = "torch._dynamo.convert_frame";
constexpr std::string_view kConvertFrameFile = "torch/_dynamo/convert_frame.py";
constexpr std::string_view kWrappers = "torch._functorch._aot_autograd.runtime_wrappers";
constexpr std::string_view kWrappersFile = "torch/_functorch/_aot_autograd/runtime_wrappers.py";

// Read in torch 2.6.0, 2.9.0, 2.13.0 and 2.14.1.
constexpr MarkerRule kRules[] = {
    {kConvertFrame, kConvertFrameFile, "_compile", "compile_id", "code", DP_MARKER_COMPILE,
     "2.6-2.14"},
    {kConvertFrame, kConvertFrameFile, "compile_frame", "attempt", "", DP_MARKER_ATTEMPT,
     "2.9-2.14"},
    {kConvertFrame, kConvertFrameFile, "_compile.<locals>._compile_inner", "attempt", "",
     DP_MARKER_ATTEMPT, "2.6"},
    {kWrappers, kWrappersFile, "_AutogradBackwardCompiler.get_or_compile", "saved_compile_context",
     "", DP_MARKER_BACKWARD, "2.13-2.14"},
    {kWrappers, kWrappersFile,
     "AOTDispatchAutograd.post_compile.<locals>.CompiledFunction._backward_impl",
     "saved_compile_context", "", DP_MARKER_BACKWARD, "2.6-2.9"},
};

constexpr std::string_view kUtils = "torch._dynamo.utils";
constexpr std::string_view kUtilsFile = "torch/_dynamo/utils.py";
constexpr std::string_view kCompiledAutograd = "torch._dynamo.compiled_autograd";
constexpr std::string_view kCompiledAutogradFile = "torch/_dynamo/compiled_autograd.py";

struct PhaseRule {
  MarkerRule function;  // `local` holds the phase's name
  std::string_view start;
  std::string_view name;  // always this one
  dp_phase_function_kind kind;
};
// Read in torch 2.6.0, 2.9.0, 2.13.0 and 2.15.0. get_fake_value and create_proxy: 2.13 and later.
constexpr PhaseRule kPhaseRules[] = {
    {{kUtils, kUtilsFile, "dynamo_timed", "event_name", "", DP_MARKER_NONE, "2.6-2.15"},
     "start_ns",
     "",
     DP_PHASE_FUNCTION_BOTH},
    {{kUtils, kUtilsFile, "chromium_event_timed", "event_name", "", DP_MARKER_NONE, "2.6-2.15"},
     "chromium_start_time",
     "",
     DP_PHASE_FUNCTION_BOTH},
    {{kCompiledAutograd, kCompiledAutogradFile, "AutogradCompilerInstance.begin_capture", "", "",
      DP_MARKER_NONE, "2.9-2.15"},
     "",
     "compiled_autograd",
     DP_PHASE_FUNCTION_BEGIN},
    {{kCompiledAutograd, kCompiledAutogradFile, "AutogradCompilerInstance.end_capture", "", "",
      DP_MARKER_NONE, "2.9-2.15"},
     "",
     "compiled_autograd",
     DP_PHASE_FUNCTION_END},
    {{kUtils, kUtilsFile, "get_fake_value", "", "", DP_MARKER_NONE, "2.13-2.15"},
     "",
     "",
     DP_PHASE_FUNCTION_OTHER},
    {{"torch._dynamo.output_graph", "torch/_dynamo/output_graph.py", "SubgraphTracer.create_proxy",
      "", "", DP_MARKER_NONE, "2.13-2.15"},
     "",
     "",
     DP_PHASE_FUNCTION_OTHER},
};
static_assert(std::size(kPhaseRules) == DP_PHASE_FUNCTIONS);

std::string_view last_part(std::string_view qualname) {
  std::size_t dot = qualname.rfind('.');
  return dot == std::string_view::npos ? qualname : qualname.substr(dot + 1);
}

bool in_file(std::string_view filename, std::string_view file) {
  return filename.ends_with(file) &&
         (filename.size() == file.size() || filename[filename.size() - file.size() - 1] == '/');
}

bool matches(const MarkerRule& rule, const RemoteCode& code, std::uint16_t python) {
  if (code.unreadable != Unreadable::kNo || code.name != last_part(rule.qualname)) return false;
  if (python >= python_version(3, 11) && code.qualname != rule.qualname) return false;
  return in_file(code.filename, rule.file);
}

// The slot of a local. A cell or free variable takes precedence over an argument of the same name (3.10).
std::optional<std::uint16_t> slot_of(const std::vector<LocalName>& locals, std::string_view name) {
  for (std::size_t i = locals.size(); i-- > 0;) {
    if (locals[i].name == name && i < DP_NO_OFFSET) return static_cast<std::uint16_t>(i);
  }
  return std::nullopt;
}

// The code objects a rule's function may have, from what its module holds.
class Finder {
 public:
  Finder(RemoteObjects& objects, const PythonRuntime& runtime)
      : objects_(objects), runtime_(runtime), reader_(objects, runtime.code_type) {}

  CodeReader& reader() { return reader_; }

  std::vector<std::uint64_t> codes_of(const MarkerRule& rule) {
    found_.clear();
    looked_at_ = 0;
    auto module = objects_.find_module(runtime_.main_interpreter, rule.module);
    if (!module) return {};
    std::string_view path = rule.qualname;
    auto object = objects_.module_get(*module, next_part(path));
    // Classes, until a function.
    while (object && !path.empty() && !path.starts_with("<locals>") && is_type(*object)) {
      object = objects_.type_get(*object, next_part(path));
    }
    if (object) from_callable(*object, path, 0);
    return std::move(found_);
  }

 private:
  static std::string_view next_part(std::string_view& path) {
    std::size_t dot = path.find('.');
    std::string_view part = path.substr(0, dot);
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
    return part;
  }

  bool is_type(std::uint64_t object) {
    // Py_TPFLAGS_TYPE_SUBCLASS of its type: also metaclasses other than `type`.
    auto type = objects_.type_of(object);
    if (!type) return false;
    auto flags = objects_.memory().read<std::uint64_t>(*type + objects_.layout().type_flags);
    return flags && (*flags >> 31 & 1) != 0;
  }

  // A function, or what wraps one: staticmethod, classmethod, bound method, a decorator's function
  // with __wrapped__ or with the original in its closure.
  void from_callable(std::uint64_t object, std::string_view path, int depth) {
    const PythonLayout& t = objects_.layout();
    if (depth > 4 || found_.size() > kMaxCodes || ++looked_at_ > kMaxLooks) return;
    auto type = objects_.type_of(object);
    if (!type) return;
    std::string kind = objects_.type_name(*type);
    if (kind == "staticmethod" || kind == "classmethod" || kind == "method") {
      if (auto inner = objects_.memory().read_pointer(object + t.method_function)) {
        from_callable(*inner, path, depth + 1);
      }
      return;
    }
    if (kind != "function") return;
    if (auto code = objects_.memory().read_pointer(object + t.function_code)) {
      from_code(*code, path, 0);
    }
    if (auto dict = objects_.memory().read_pointer(object + t.function_dict)) {
      if (auto wrapped = objects_.dict_get(*dict, "__wrapped__")) {
        from_callable(*wrapped, path, depth + 1);
      }
    }
    if (auto closure = objects_.memory().read_pointer(object + t.function_closure)) {
      auto cells = objects_.tuple_items(*closure, 64);
      if (!cells) return;
      for (std::uint64_t cell : *cells) {
        auto value = plausible_pointer(cell) ? objects_.memory().read_pointer(cell + t.cell_value)
                                             : std::nullopt;
        if (value) from_callable(*value, path, depth + 1);
      }
    }
  }

  // Functions and classes defined inside are constants of the code object around them.
  void from_code(std::uint64_t code, std::string_view path, int depth) {
    while (path.starts_with("<locals>")) next_part(path);
    if (path.empty()) {
      if (std::find(found_.begin(), found_.end(), code) == found_.end()) found_.push_back(code);
      return;
    }
    if (depth > 8 || !reader_.identity_of(code)) return;
    const PythonLayout& t = objects_.layout();
    std::string_view part = next_part(path);
    auto tuple = objects_.memory().read_pointer(code + t.code_consts);
    auto items = tuple ? objects_.tuple_items(*tuple, 4096) : std::nullopt;
    if (!items) return;
    for (std::uint64_t item : *items) {
      if (found_.size() > kMaxCodes || ++looked_at_ > kMaxLooks) return;
      if (!reader_.identity_of(item)) continue;
      if (reader_.read(item).name == part) from_code(item, path, depth + 1);
    }
  }

  static constexpr std::size_t kMaxCodes = 32;
  // For one rule: however functions and code hold each other, looking at them ends.
  static constexpr std::size_t kMaxLooks = 65'536;

  RemoteObjects& objects_;
  const PythonRuntime& runtime_;
  CodeReader reader_;
  std::vector<std::uint64_t> found_;
  std::size_t looked_at_ = 0;
};

}  // namespace

std::span<const MarkerRule> marker_rules() { return kRules; }

std::optional<ResolvedMarker> match_marker(CodeReader& reader, const RemoteCode& code,
                                           std::uint16_t python) {
  for (const MarkerRule& rule : kRules) {
    if (!matches(rule, code, python)) continue;
    auto locals = reader.read_locals(code.address);
    // The names belong to the object we mean only if it is still there.
    if (!locals || reader.identity_of(code.address) != code.identity) return std::nullopt;
    auto slot = slot_of(*locals, rule.local);
    if (!slot) continue;  // another torch version's function of that name
    ResolvedMarker found;
    found.code = code.address;
    found.rule = &rule;
    found.marker.identity = code.identity;
    found.marker.slot = *slot;
    found.marker.code_slot = DP_NO_OFFSET;
    found.marker.kind = static_cast<std::uint8_t>(rule.kind);
    if (!rule.code_local.empty()) {
      found.marker.code_slot = slot_of(*locals, rule.code_local).value_or(DP_NO_OFFSET);
    }
    return found;
  }
  return std::nullopt;
}

std::vector<ResolvedMarker> resolve_markers(RemoteObjects& objects, const PythonRuntime& runtime) {
  Finder finder(objects, runtime);
  std::vector<ResolvedMarker> markers;
  for (const MarkerRule& rule : kRules) {
    for (std::uint64_t address : finder.codes_of(rule)) {
      RemoteCode code = finder.reader().read(address);
      auto marker = match_marker(finder.reader(), code, objects.layout().python);
      if (marker && marker->rule == &rule) markers.push_back(*marker);
    }
  }
  return markers;
}

std::string_view fixed_phase_name(std::size_t function) {
  return function < std::size(kPhaseRules) ? kPhaseRules[function].name : std::string_view();
}

bool is_phase_function(const RemoteCode& code, std::uint16_t python) {
  return std::any_of(std::begin(kPhaseRules), std::end(kPhaseRules), [&](const PhaseRule& rule) {
    return rule.kind == DP_PHASE_FUNCTION_BOTH && matches(rule.function, code, python);
  });
}

std::optional<PhaseFunctions> resolve_phase_functions(RemoteObjects& objects,
                                                      const PythonRuntime& runtime) {
  Finder finder(objects, runtime);
  PhaseFunctions functions = {};
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const PhaseRule& rule = kPhaseRules[i];
    for (std::uint64_t address : finder.codes_of(rule.function)) {
      RemoteCode code = finder.reader().read(address);
      if (!matches(rule.function, code, objects.layout().python)) continue;
      auto locals = finder.reader().read_locals(address);
      auto slot = [&](std::string_view name) {
        return locals ? slot_of(*locals, name) : std::nullopt;
      };
      auto name = slot(rule.function.local), start = slot(rule.start);
      if (rule.kind == DP_PHASE_FUNCTION_BOTH && (!name || !start)) continue;
      functions[i].code = address;
      functions[i].name_slot = name.value_or(DP_NO_OFFSET);
      functions[i].start_slot = start.value_or(DP_NO_OFFSET);
      functions[i].kind = rule.kind;
      break;
    }
  }
  if (functions[0].code == 0) return std::nullopt;
  return functions;
}

namespace {

// The frame an event came from, as long as it is one of the same function.
class FrameOfPhase {
 public:
  FrameOfPhase(RemoteObjects& objects, std::span<const dp_phase_function> functions,
               const dp_phase_event& event)
      : memory_(objects.memory()), layout_(objects.layout().bpf), event_(event) {
    auto found = std::find_if(functions.begin(), functions.end(), [&](const auto& one) {
      return one.code == event.code && one.kind == DP_PHASE_FUNCTION_BOTH;
    });
    if (event.code != 0 && found != functions.end()) function_ = &*found;
  }
  const dp_phase_function* function() const { return function_; }
  bool is_there() {
    auto code = memory_.read<std::uint64_t>(event_.frame + layout_.frame_base + layout_.frame_code);
    return code && untagged(*code) == event_.code;
  }
  // The object; 0: not set.
  std::uint64_t local(std::uint16_t slot) {
    auto word = memory_.read<std::uint64_t>(event_.frame + layout_.frame_localsplus + 8ULL * slot);
    return untagged(word.value_or(0));
  }

 private:
  std::uint64_t untagged(std::uint64_t word) const {
    return word & ~std::uint64_t{layout_.code_tag_mask};
  }
  RemoteMemory& memory_;
  const dp_python_layout& layout_;
  const dp_phase_event& event_;
  const dp_phase_function* function_ = nullptr;
};

}  // namespace

std::optional<PhaseFrame> read_phase_frame(RemoteObjects& objects,
                                           std::span<const dp_phase_function> functions,
                                           const dp_phase_event& event) {
  constexpr std::size_t kMaxName = 256;
  FrameOfPhase frame(objects, functions, event);
  if (!frame.function() || !frame.is_there()) return std::nullopt;
  auto name = objects.read_str(frame.local(frame.function()->name_slot), kMaxName);
  if (!name) return std::nullopt;
  // By now the time of the begin may be stored: that it was one follows from the code being unknown.
  return PhaseFrame{DP_PHASE_BEGIN, std::move(*name)};
}

std::optional<bool> is_phase_open(RemoteObjects& objects, const PythonRuntime& runtime,
                                  std::span<const dp_phase_function> functions,
                                  const dp_phase_event& event, std::int64_t clock_offset_ns) {
  // Between the probe and the clock's answer a busy machine may run something else; for how long is not known.
  constexpr std::int64_t kNextNs = 20'000'000, kMuchLaterNs = 100'000'000;
  FrameOfPhase frame(objects, functions, event);
  if (!frame.function()) return std::nullopt;
  if (!frame.is_there()) return false;
  const std::uint64_t start = frame.local(frame.function()->start_slot);
  if (start == 0) return std::nullopt;
  auto began_ns = RemoteValues(objects, runtime).read_int(start);
  if (!began_ns) return false;
  const std::int64_t apart_ns =
      *began_ns - clock_offset_ns - static_cast<std::int64_t>(event.header.time_ns);
  if (apart_ns < -kNextNs || apart_ns > kMuchLaterNs) return false;
  return apart_ns <= kNextNs ? std::optional(true) : std::nullopt;
}

// Where the interpreter reads a code object's instructions.
std::optional<std::uint64_t> first_instruction(RemoteObjects& objects, std::uint64_t code) {
  const PythonLayout& t = objects.layout();
  if (!t.bpf.instr_is_index) return code + t.bpf.code_instructions;
  auto bytes = objects.memory().read_pointer(code + t.code_code);  // 3.10: an object of its own
  if (!bytes || !plausible_pointer(*bytes)) return std::nullopt;
  return *bytes + t.bytes_data;
}

std::optional<InlineFunction> resolve_inline_function(RemoteObjects& objects,
                                                      const PythonRuntime& runtime) {
  constexpr MarkerRule kRule = {"torch._dynamo.symbolic_convert",
                                "torch/_dynamo/symbolic_convert.py",
                                "profile_inline_call",
                                "code",
                                "",
                                DP_MARKER_NONE,
                                "2.13-2.14"};
  const PythonLayout& t = objects.layout();
  constexpr std::uint32_t kMaxUnits = 1000;  // it has some 50
  Finder finder(objects, runtime);
  for (std::uint64_t address : finder.codes_of(kRule)) {
    RemoteCode code = finder.reader().read(address);
    auto locals = finder.reader().read_locals(address);
    if (!locals || !matches(kRule, code, t.python)) continue;
    auto slot = slot_of(*locals, kRule.local);
    auto lines = decode_line_table(t.python, code.line_table, code.first_line);
    // `if not config...:`, `yield`, `return`: three lines, one below the other.
    auto test = std::find_if(lines.begin(), lines.end(), [&](const LineRange& range) {
      return range.line > code.first_line + 1;
    });
    if (!slot || lines.end() - test < 3 || test[2].begin > kMaxUnits ||
        test[1].line != test->line + 1 || test[2].line != test->line + 2)
      continue;
    auto instructions = first_instruction(objects, address);
    if (!instructions) continue;
    InlineFunction watch;
    watch.code = address;
    watch.begin_unit = static_cast<std::uint16_t>(test[1].begin);
    watch.end_unit = static_cast<std::uint16_t>(test[2].begin);
    watch.begin = *instructions + 2ULL * watch.begin_unit;
    watch.end = *instructions + 2ULL * watch.end_unit;
    watch.slot = *slot;
    return watch;
  }
  return std::nullopt;
}

}  // namespace dynprof
