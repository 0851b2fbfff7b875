#include "user/generated/inductor_files.h"

#include <fmt/format.h>

#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxModules = 16'384;
constexpr std::size_t kMaxGlobals = 16'384;
constexpr std::size_t kMaxPath = 4096;

std::string stem(std::string_view path) {
  std::string_view name = base_name(path);
  return std::string(name.substr(0, name.find('.')));
}

std::string_view directory(std::string_view path) {
  return path.substr(0, std::min(path.rfind('/'), path.size()));
}

GeneratedDirection direction_of(PythonObjects& python, const FoundObject& graph) {
  auto options = python.values().attribute(graph.address, "fx_kwargs");
  if (!options) return graph.direction;
  auto flag = [&](std::string_view name) {
    auto value = python.objects().dict_get(*options, name);
    return value && python.values().read_bool(*value).value_or(false);
  };
  if (flag("is_backward")) return GeneratedDirection::kBackward;
  if (flag("is_inference")) return GeneratedDirection::kInference;
  return GeneratedDirection::kForward;
}

}  // namespace

std::string kernel_source_path(const std::string& library, const std::string& wrapper) {
  constexpr std::string_view kLibrary = ".so";
  if (!library.ends_with(kLibrary)) return "";
  if (directory(directory(library)) != directory(directory(wrapper))) return "";
  return library.substr(0, library.size() - kLibrary.size()) + ".cpp";
}

InductorFiles::InductorFiles(PythonObjects& python, TargetFiles& files, Collector& collector)
    : python_(python), files_(files), collector_(collector) {
  auto type = python.global("torch._inductor.codecache", "PyCodeCache");
  auto list = type ? python.objects().type_get(*type, "modules") : std::nullopt;
  auto items = list ? python.values().list_items(*list, kMaxModules) : std::nullopt;
  for (std::uint64_t item : items.value_or(std::vector<std::uint64_t>())) {
    if (!python.values().is_a(item, "module")) continue;
    auto dict =
        python.objects().memory().read_pointer(item + python.objects().layout().module_dict);
    auto file = dict ? python.objects().dict_get(*dict, "__file__") : std::nullopt;
    auto path = file ? python.values().read_str(*file, kMaxPath) : std::nullopt;
    if (path) modules_[stem(*path)] = {*path, *dict};
  }
}

void InductorFiles::add_graph(const FoundObject& graph, const std::string& trace_id) {
  if (!added_.insert(fmt::format("{} {:#x}", trace_id, graph.address)).second) return;
  GeneratedFile file;
  file.trace_id = trace_id;
  file.direction = direction_of(python_, graph);
  auto key = python_.text_attribute(graph.address, "cache_key", 256);
  auto found = key ? modules_.find(key->text) : modules_.end();
  const Module* module = found == modules_.end() ? nullptr : &found->second;
  add_wrapper(graph.address, module, file);
  add_text(graph.address, "inductor_post_grad_graph_str", "post_grad_graph", file);
  add_text(graph.address, "runnable_graph_str", "runnable_graph", file);
  if (module) add_kernels(*module, file);
}

// What torch read of the file right after it wrote it is what was compiled; the file may have been
// changed since.
void InductorFiles::add_wrapper(std::uint64_t graph, const Module* module, GeneratedFile file) {
  if (!collector_.place()) return;
  file.kind = GeneratedKind::kWrapper;
  file.origin = module ? module->path : "CompiledFxGraph.source_code";
  auto memory = python_.text_attribute(graph, "source_code", collector_.room());
  if (module) {
    auto disk = files_.read(module->path, collector_.room());
    if (!disk) {
      file.problem = "the file " + disk.error().what;
      if (memory) file.problem += "; this is torch's copy of it in memory";
    } else if (memory && memory->text != disk->content) {
      file.problem = "the file has changed; this is torch's copy of it in memory";
    } else if (!memory) {
      memory = RemoteText{std::move(disk->content), disk->truncated};
      if (!disk->problem.empty()) file.problem = "the file " + disk->problem;
    }
    paths_.insert(module->path);
  }
  if (!memory && file.problem.empty()) return;
  if (memory) {
    auto id = parse_aot_id(memory->text);
    if (id && id->direction != file.direction) file.direction = GeneratedDirection::kNone;
    file.content = std::move(memory->text);
    file.truncated = memory->truncated;
  }
  std::string name = directed_name(file.direction, "wrapper");
  collector_.add(std::move(file), name, ".py");
}

void InductorFiles::add_text(std::uint64_t graph, std::string_view attribute, std::string_view hint,
                             GeneratedFile file) {
  if (!collector_.place()) return;
  auto text = python_.text_attribute(graph, attribute, collector_.room());
  if (!text || text->text.empty()) return;
  file.kind = GeneratedKind::kFxGraph;
  file.origin = fmt::format("CompiledFxGraph.{}", attribute);
  file.content = std::move(text->text);
  file.truncated = text->truncated;
  std::string name = directed_name(file.direction, hint);
  collector_.add(std::move(file), name, ".py");
}

// The kernels are globals of the wrapper: functions of an extension module, Triton's launchers.
void InductorFiles::add_kernels(const Module& module, const GeneratedFile& like) {
  auto items = python_.values().dict_items(module.dict, kMaxGlobals);
  if (!items) return;
  std::vector<std::uint64_t> objects;
  for (const DictEntry& item : *items) objects.push_back(item.value);
  std::vector<RemoteValue> values = python_.values().values(objects, 1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].kind != RemoteValue::Kind::kOther) continue;
    std::string path = kernel_path(values[i].address, values[i].text, module);
    if (path.empty()) continue;
    // A kernel that forward and backward share is a file of both.
    std::string key = fmt::format("{} {} {}", like.trace_id, direction_name(like.direction), path);
    if (!added_.insert(key).second) continue;
    auto name = python_.values().read_str((*items)[i].key, 256);
    add_kernel(path, name.value_or(""), like);
  }
}

std::string InductorFiles::kernel_path(std::uint64_t object, std::string_view type,
                                       const Module& module) {
  if (type == "builtin_function_or_method") {
    auto extension = python_.builtin_self(object);
    if (!extension || python_.values().type_name(*extension) != "module") return "";
    auto file = python_.objects().module_get(*extension, "__file__");
    auto path = file ? python_.values().read_str(*file, kMaxPath) : std::nullopt;
    return path ? kernel_source_path(*path, module.path) : "";
  }
  if (!type.ends_with("CachingAutotuner")) return "";
  auto path = python_.text_attribute(object, "filename", kMaxPath);
  return path && !path->truncated ? path->text : "";
}

void InductorFiles::add_kernel(const std::string& path, std::string_view name, GeneratedFile file) {
  if (!collector_.place()) return;
  file.kind = GeneratedKind::kKernelSource;
  file.origin = path;
  file.kernel = name;
  paths_.insert(path);
  auto extension = source_extension(path).value_or(".txt");
  if (auto text = files_.read(path, collector_.room())) {
    file.content = std::move(text->content);
    file.truncated = text->truncated;
    if (!text->problem.empty()) file.problem = "the file " + text->problem;
  } else {
    file.problem = "the file " + text.error().what;
  }
  std::string hint = directed_name(file.direction, name.empty() ? "kernel" : name);
  collector_.add(std::move(file), hint, extension);
}

void InductorFiles::add_others() {
  for (const auto& [key, module] : modules_) {
    if (paths_.contains(module.path)) continue;
    if (!collector_.place()) continue;
    auto text = files_.read(module.path, collector_.room());
    auto id = text ? parse_aot_id(text->content) : std::nullopt;
    GeneratedFile file;
    if (id) {
      file.kind = GeneratedKind::kWrapper;
      file.direction = id->direction;
      file.origin = module.path;
      file.content = std::move(text->content);
      file.truncated = text->truncated;
      collector_.add(std::move(file), directed_name(id->direction, "wrapper"), ".py");
      // Of no known compile, but a process that compiled one of them can be named after it.
      GeneratedFile like;
      like.direction = id->direction;
      add_kernels(module, like);
    } else {
      add_kernel(module.path, "", file);
    }
  }
}

}  // namespace dynprof
