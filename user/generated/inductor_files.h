// Inductor's output for a graph: its wrapper, the kernels' source files, and the texts a
// CompiledFxGraph keeps of the graph.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "user/generated/collector.h"
#include "user/generated/python_objects.h"
#include "user/generated/reachable.h"
#include "user/generated/target_file.h"

namespace dynprof {

class InductorFiles {
 public:
  // Reads the list of modules Inductor loaded, PyCodeCache.modules.
  InductorFiles(PythonObjects& python, TargetFiles& files, Collector& collector);

  // All of one CompiledFxGraph.
  void add_graph(const FoundObject& graph, const std::string& trace_id);
  // Modules that no graph above led to.
  void add_others();

 private:
  struct Module {
    std::string path;
    std::uint64_t dict = 0;
  };
  void add_wrapper(std::uint64_t graph, const Module* module, GeneratedFile file);
  void add_text(std::uint64_t graph, std::string_view attribute, std::string_view hint,
                GeneratedFile file);
  void add_kernels(const Module& module, const GeneratedFile& like);
  void add_kernel(const std::string& path, std::string_view name, GeneratedFile file);
  std::string kernel_path(std::uint64_t object, std::string_view type, const Module& module);

  PythonObjects& python_;
  TargetFiles& files_;
  Collector& collector_;
  std::map<std::string, Module> modules_;  // by the stem of the file, which is its key in the cache
  std::set<std::string>
      added_;  // "<trace id> <graph's address>", "<trace id> <direction> <kernel>"
  std::set<std::string> paths_;  // that were copied for a graph
};

// Where the C++ of a kernel's shared library lies: ".../oy/c123.main.so" -> ".../oy/c123.main.cpp", if
// it is in the same cache directory as `wrapper` (".../yb/c456.py"); else "".
std::string kernel_source_path(const std::string& library, const std::string& wrapper);

}  // namespace dynprof
