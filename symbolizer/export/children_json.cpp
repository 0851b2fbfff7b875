#include "symbolizer/export/children_json.h"

#include <sys/wait.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "symbolizer/base/text.h"

namespace dynprof {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxChildren = 500;
constexpr std::size_t kMaxOthers = 100;
constexpr std::size_t kArgumentBytes = 1024;

Json seconds(std::uint64_t ns) { return std::round(static_cast<double>(ns) / 1e3) / 1e6; }

Json child_json(const Analysis& analysis, ProcessIndex index) {
  const ProcessTree& tree = analysis.processes();
  const ChildProcess& child = tree.all()[index];
  const ProcessJob& job = analysis.jobs().of(index);
  Json arguments = Json::array();
  for (const std::string& argument : tree.arguments(child.images.back(), kArgumentBytes))
    arguments.push_back(valid_utf8(argument));
  Json programs = Json::array();
  for (const ProcessImage& image : child.images)
    programs.push_back({{"command", valid_utf8(tree.title(child, image))},
                        {"start_ns", image.begin_ns},
                        {"wall_s", seconds(image.end_ns - image.begin_ns)}});
  const int status = child.exit_status;
  return {
      {"pid", child.pid},
      {"parent", child.parent_pid},
      {"command", valid_utf8(tree.title(child))},
      {"argv", std::move(arguments)},
      {"argv_bytes", child.images.back().command_bytes},
      {"programs", std::move(programs)},
      {"start_ns", child.begin_known ? Json(child.begin_ns) : Json(nullptr)},
      {"wall_s", child.begin_known ? seconds(child.end_ns - child.begin_ns) : Json(nullptr)},
      {"cpu_s", child.cpu_known ? seconds(child.cpu_ns) : Json(nullptr)},
      {"cpu_final", child.cpu_final},
      {"samples", child.samples},
      {"joined_by", join_rule_text(child.rule)},
      {"purpose", purpose_text(job.purpose)},
      {"one_off", is_one_off(job.purpose)},
      {"kernel", job.kernel.empty() ? Json(nullptr) : Json(valid_utf8(job.kernel))},
      {"peak_rss_bytes", child.peak_bytes == 0 ? Json(nullptr) : Json(child.peak_bytes)},
      {"exit_code", child.ended && WIFEXITED(status) ? Json(WEXITSTATUS(status)) : Json(nullptr)},
      {"signal", child.ended && WIFSIGNALED(status) ? Json(WTERMSIG(status)) : Json(nullptr)}};
}

}  // namespace

void add_children(Json& row, const Analysis& analysis, CompileIndex index) {
  const ProcessTree& tree = analysis.processes();
  if (!tree.known()) return;
  const Compile& compile = analysis.attribution().compiles()[index];
  if (compile.thread == kNoThread) return;
  row["children_cpu_s"] = seconds(tree.cpu_ns(index));
  row["one_off_s"] = seconds(analysis.jobs().one_off(index).wall_ns);
  const std::vector<Interval> off = tree.off_cpu(index);
  Json children = Json::array();
  for (ProcessIndex i : tree.of(index)) {
    if (children.size() == kMaxChildren) break;
    const ChildProcess& child = tree.all()[i];
    Json object = child_json(analysis, i);
    object["waited_s"] =
        seconds(ProcessTree::overlap_ns(child, {compile.first_ns, compile.last_ns}, off));
    children.push_back(std::move(object));
  }
  row["children_left_out"] = tree.of(index).size() - children.size();
  row["children"] = std::move(children);
  Json workers = Json::array();
  for (const WorkerShare& share : tree.worker_shares()) {
    if (share.compile != index) continue;
    workers.push_back({{"pid", tree.all()[share.process].pid}, {"cpu_s", seconds(share.cpu_ns)}});
  }
  row["compile_workers"] = std::move(workers);
}

Json processes_json(const Analysis& analysis) {
  const ProcessTree& tree = analysis.processes();
  Json others = Json::array();
  std::size_t left_out = 0, joined = 0;
  for (ProcessIndex i = 0; i < tree.all().size(); ++i) {
    if (tree.all()[i].compile != kNoCompile) {
      ++joined;
    } else if (others.size() < kMaxOthers) {
      others.push_back(child_json(analysis, i));
    } else {
      ++left_out;
    }
  }
  Json targets = Json::array();
  for (const ProcessPeak& target : tree.target_peaks())
    targets.push_back({{"pid", target.pid}, {"peak_rss_bytes", target.bytes}});
  return {{"count", tree.all().size()},
          {"joined", joined},
          {"joined_cpu_s", seconds(tree.joined_cpu_ns())},
          {"shared_cpu_s", seconds(tree.shared_cpu_ns())},
          {"other_cpu_s", seconds(tree.other_cpu_ns())},
          {"others", std::move(others)},
          {"others_left_out", left_out},
          {"targets", std::move(targets)}};
}

}  // namespace dynprof
