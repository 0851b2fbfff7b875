#include "user/live/target_view.h"

namespace dynprof {
namespace {

bool in_file(std::string_view filename, std::string_view file) {
  return filename.ends_with(file) &&
         (filename.size() == file.size() || filename[filename.size() - file.size() - 1] == '/');
}

}  // namespace

bool TargetView::is_function(const StackFrame& frame, std::string_view file,
                             std::string_view qualname) const {
  const RemoteCode& code = names.of(frame);
  if (code.unreadable != Unreadable::kNo) return false;
  if (python() >= python_version(3, 11)) {
    if (code.qualname != qualname) return false;
  } else if (code.name != qualname.substr(qualname.rfind('.') + 1)) {
    return false;
  }
  return in_file(code.filename, file);
}

std::optional<TargetView::Local> TargetView::local(const StackFrame& frame, std::string_view name) {
  auto slot = names.slot(frame, name);
  if (!slot) return std::nullopt;
  const PythonLayout& t = runtime.layout;
  Local found;
  found.place = frame.at.frame + t.bpf.frame_localsplus + std::uint64_t{*slot} * 8;
  found.word = stacks.moment().memory().read<std::uint64_t>(found.place).value_or(0);
  found.value = found.word & ~std::uint64_t{t.bpf.code_tag_mask};
  if (!plausible_pointer(found.value)) return std::nullopt;
  if (runtime.cell_type != 0 && objects.type_of(found.value) == runtime.cell_type) {
    auto inside = objects.memory().read_pointer(found.value + t.cell_value);
    if (!inside) return std::nullopt;
    found.value = *inside;
  }
  return found;
}

bool TargetView::still_holds(const UsedLocals& used, const RemoteStack& then,
                             const RemoteStack& now) {
  if (!same_calls(then, now, used.frames_from_root)) return false;
  RemoteMemory& memory = stacks.moment().memory();
  for (const auto& [place, word] : used.words) {
    if (memory.read<std::uint64_t>(place) != word) return false;
  }
  return true;
}

}  // namespace dynprof
