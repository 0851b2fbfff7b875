#include "user/process/process_python.h"

#include <algorithm>
#include <utility>

#include "user/torch/triton_watch.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxTritonCodes = 256;

}  // namespace

struct ProcessPython::Readers {
  Readers(pid_t pid, const PythonRuntime& python)
      : memory(pid),
        objects(memory, python.layout),
        code(objects, python.code_type),
        values(objects, python) {
    objects.set_str_type(python.str_type);
  }
  ProcessMemory memory;
  RemoteObjects objects;
  CodeReader code;
  RemoteValues values;
};

ProcessPython::ProcessPython(pid_t pid, KernelSide& kernel, LookSchedule& schedule,
                             KnownImages& images)
    : pid_(pid), kernel_(kernel), images_(images), schedule_(schedule) {}

ProcessPython::~ProcessPython() = default;

Result<void> ProcessPython::find(PythonDiscovery& details) {
  auto found = discover_python(pid_, &details, &images_);
  if (!found) return std::move(found).error();
  runtime_ = std::move(*found);
  readers_ = std::make_unique<Readers>(pid_, *runtime_);
  return {};
}

void ProcessPython::inherit(const ProcessPython& parent) {
  if (!parent) return;
  runtime_ = parent.runtime_;
  runtime_->pid = pid_;
  readers_ = std::make_unique<Readers>(pid_, *runtime_);
  codes_ = parent.codes_;
  triton_ = parent.triton_;
  for (const auto& [code, marker] : parent.markers_) add_marker({code, marker, nullptr});
}

void ProcessPython::forget() {
  runtime_.reset();
  readers_.reset();
  codes_.clear();
  markers_.clear();
  triton_.clear();
}

RemoteObjects& ProcessPython::objects() const { return readers_->objects; }
CodeReader& ProcessPython::code_reader() const { return readers_->code; }

RemoteValues& ProcessPython::values() {
  constexpr std::size_t kMostTypes = 256;
  if (readers_->values.types_known() > kMostTypes) readers_->values.forget();
  return readers_->values;
}

void ProcessPython::learn(std::span<const CodeRequest> codes, RecordingWriter& writer) {
  if (!readers_) return;
  for (const RemoteCode& code :
       codes_.learn(codes, readers_->code, writer, runtime_->layout.python)) {
    if (auto marker = match_marker(readers_->code, code, runtime_->layout.python)) {
      add_marker(*marker);
      schedule_.marker_seen = true;
    } else {
      add_plain_code(code.address, code.identity);
    }
    if (is_triton_work(code.filename, code.name) && triton_.size() < kMaxTritonCodes)
      triton_.insert_or_assign(code.address, code.identity);
  }
}

bool ProcessPython::runs_triton(std::span<const dp_frame> frames) const {
  if (triton_.empty()) return false;
  return std::any_of(frames.begin(), frames.end(), [&](const dp_frame& frame) {
    const auto at = triton_.find(frame.code);
    return at != triton_.end() && at->second == frame.identity;
  });
}

void ProcessPython::add_marker(const ResolvedMarker& marker) {
  auto [at, added] = markers_.insert_or_assign(marker.code, marker.marker);
  kernel_.add_code(static_cast<std::uint32_t>(pid_), at->first, at->second);
}

void ProcessPython::add_plain_code(std::uint64_t address, std::uint32_t identity) {
  dp_marker_code plain = {};
  plain.identity = identity;
  kernel_.add_code(static_cast<std::uint32_t>(pid_), address, plain);
}

bool ProcessPython::runs_marker() const {
  for (const RemoteThread& thread : runtime_->threads) {
    auto frames = walk_frames(readers_->objects, thread.tstate, DP_MAX_PYTHON_FRAMES);
    if (!frames) return true;  // torn: not known
    for (const RemoteFrame& frame : *frames)
      if (markers_.contains(frame.code)) return true;
  }
  return false;
}

}  // namespace dynprof
