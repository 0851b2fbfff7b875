#include "user/generated/find_generated.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "symbolizer/base/text.h"
#include "user/generated/code_files.h"
#include "user/generated/collector.h"
#include "user/generated/compiled_codes.h"
#include "user/generated/confirm_generated.h"
#include "user/generated/fx_sources.h"
#include "user/generated/gc_walk.h"
#include "user/generated/graph_node_files.h"
#include "user/generated/guard_reasons.h"
#include "user/generated/inductor_files.h"
#include "user/generated/target_file.h"
#include "user/target/snapshot_memory.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxGuardsExpression = 65'536;
constexpr std::size_t kMaxWantedGuards = 65'536;
constexpr std::size_t kBatch = 16;  // ranges in one read

// What takes longest to find, once for both looks: guard managers that are still there are read again in the second, and
// a reason is only used for a guard that both have.
struct Guards {
  GuardObjects objects;
  std::optional<GuardReasons> reasons;
};

class Finder {
 public:
  Finder(PythonObjects& python, pid_t pid, Guards& guards, const GeneratedLimits& limits,
         LookDeadline deadline)
      : python_(python),
        guards_(guards),
        limits_(limits),
        deadline_(deadline),
        files_(pid),
        collector_(limits) {}

  GeneratedCode run() {
    codes_ = find_compiled_codes(python_, guards_.objects, deadline_);
    if (!codes_.missing.empty()) {
      collector_.missing("what belongs to which compile: " + codes_.missing);
    }
    if (!guards_.reasons) read_reasons();
    FxSources sources(python_, collector_);
    InductorFiles inductor(python_, files_, collector_);
    CodeObjectFiles code_files(python_, files_, collector_, codes_);
    for (const CompiledCode& code : codes_.codes) {
      if (over(deadline_)) break;
      code_files.add(code);
      for (const GuardManager& guards : code.guards) add_guards(guards, &code);
      for (const CompiledGraph& graph : code.graphs) {
        for (const FoundObject& compiled : graph.reachable.compiled_graphs) {
          inductor.add_graph(compiled, graph.trace_id);
        }
        sources.add_graph(graph);
      }
    }
    for (const ResumeFunction& resume : codes_.resume_functions) code_files.add(resume);
    for (const GuardManager& guards : codes_.other_guards) add_guards(guards, nullptr);
    inductor.add_others();
    sources.add_others();
    graphs_ = sources.take_graphs();
    note_missing();
    return collector_.take();
  }
  // Those that run() found.
  const std::vector<LiveGraph>& graphs() const { return graphs_; }

 private:
  void read_reasons() {
    guards_.reasons.emplace();
    if (guards_.objects.complete)
      guards_.reasons->read(python_, guards_.objects.lists, wanted_guards());
  }

  std::set<std::string> wanted_guards() {
    std::set<std::string> wanted;
    auto want = [&](const GuardManager& guards) {
      if (wanted.size() >= kMaxWantedGuards || over(deadline_)) return;
      auto text = read_guards(python_, guards, limits_.file_bytes);
      if (text) wanted.insert(text->parts.begin(), text->parts.end());
    };
    for (const CompiledCode& code : codes_.codes) {
      for (const GuardManager& guards : code.guards) want(guards);
    }
    for (const GuardManager& guards : codes_.other_guards) want(guards);
    return wanted;
  }

  void add_guards(const GuardManager& guards, const CompiledCode* code) {
    if (!collector_.place()) return;
    auto text = read_guards(python_, guards, collector_.room());
    if (!text) return;
    GeneratedFile file;
    file.trace_id = guards.trace_id;
    file.kind = GeneratedKind::kGuards;
    file.origin = "GuardManagerWrapper.code_parts";
    file.truncated = text->truncated;
    file.content = fmt::format("# Conditions for using the code compiled from {}, {}\n",
                               code ? describe_code(python_.codes().read(code->original)) : "?",
                               shown_id(guards.trace_id));
    for (const std::string& part : text->parts) {
      file.content += escape_terminal(part);
      std::string reason = guards_.reasons->reason(part);
      if (!reason.empty()) file.content += "  # " + escape_terminal(reason);
      file.content += "\n";
    }
    if (!text->shape_parts.empty()) file.content += "\n# On shapes, with their origin\n";
    for (const std::string& part : text->shape_parts) {
      file.content += escape_terminal(part) + "\n";
    }
    if (code) file.content += graph_guards(*code);
    collector_.add(std::move(file), "guards", ".txt");
  }

  // What Inductor's cache asks of the sizes of a graph, in the graph's own symbols.
  std::string graph_guards(const CompiledCode& code) {
    std::string text;
    for (const CompiledGraph& graph : code.graphs) {
      for (const FoundObject& compiled : graph.reachable.compiled_graphs) {
        auto guards = python_.text_attribute(compiled.address, "guards_expr", kMaxGuardsExpression);
        if (!guards || guards->text.empty()) continue;
        text += fmt::format("\n# On the sizes of {}\n{}\n", escape_terminal(graph.name),
                            escape_terminal(guards->text));
      }
    }
    return text;
  }

  void note_missing() {
    if (over(deadline_)) {
      collector_.missing(
          fmt::format("what was not found within {} ms of CPU time, {} ms by the clock",
                      limits_.time.count(), limits_.by_the_clock.count()));
    } else if (!guards_.objects.complete) {
      collector_.missing("guards of compiled code that refers to no module, function or class");
    }
    std::size_t cut = 0;
    for (const CompiledCode& code : codes_.codes) {
      for (const CompiledGraph& graph : code.graphs) cut += graph.reachable.complete ? 0 : 1;
    }
    if (cut != 0) {
      collector_.missing(fmt::format("parts of {} compiled graphs: too many objects", cut));
    }
  }

  PythonObjects& python_;
  Guards& guards_;
  GeneratedLimits limits_;
  LookDeadline deadline_;
  TargetFiles files_;
  Collector collector_;
  CompiledCodes codes_;
  std::vector<LiveGraph> graphs_;
};

}  // namespace

GeneratedCode find_generated(RemoteObjects& objects, const PythonRuntime& runtime, pid_t pid,
                             const GeneratedLimits& limits) {
  // Imported at the first compile.
  if (!objects.find_module(runtime.main_interpreter, "torch._dynamo.utils")) return {};
  // Blocks of memory as they were when each was first asked for: a look at many small objects takes some reads of blocks
  // instead of several reads for each object, each of which may take the target's lock on its memory map. What was freed and reused
  // during a look differs in the next one, and is left out.
  Guards guards;
  auto look = [&](const LookDeadline& deadline, std::vector<LiveGraph>& graphs) {
    SnapshotMemory pages(objects.memory());
    pages.pass_batches(kBatch);
    RemoteObjects held(pages, objects.layout());
    held.set_str_type(objects.str_type());
    PythonObjects python(held, runtime);
    if (!guards.reasons || !all_in_rings(objects.memory().current(), guards.objects.managers))
      guards.objects = find_guard_objects(python, limits.gc_objects, deadline);
    Finder finder(python, pid, guards, limits, deadline);
    GeneratedCode code = finder.run();
    graphs = finder.graphs();
    return code;
  };
  const LookDeadline half(limits.time / 2, limits.by_the_clock / 2);
  const LookDeadline whole(limits.time, limits.by_the_clock);
  std::vector<LiveGraph> before, graphs;
  GeneratedCode first = look(half, before);
  GeneratedCode code = confirm_generated(first, look(whole, graphs));
  std::erase_if(graphs, [&](const LiveGraph& graph) {
    return std::find(before.begin(), before.end(), graph) == before.end();
  });
  add_graph_nodes(objects, runtime, graphs, limits, whole, code);
  return code;
}

}  // namespace dynprof
