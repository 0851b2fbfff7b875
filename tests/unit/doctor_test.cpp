// The verdict, both outputs, and what the settings of a machine and a process lead to.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "user/doctor/diagnosis_output.h"
#include "user/doctor/machine_checks.h"
#include "user/doctor/probing.h"
#include "user/doctor/target_checks.h"

namespace dynprof {
namespace {

constexpr std::uint64_t bit(int capability) { return 1ULL << capability; }

// A root of the few files that are read.
class Root {
 public:
  Root() {
    std::string name = testing::TempDir() + "doctor-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Root() { std::filesystem::remove_all(path_); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Diagnosis with(std::vector<Check> checks) {
  Diagnosis found;
  found.system = "Linux 6.1.0 on x86_64";
  found.pid = 42;
  found.groups.push_back({"process", std::move(checks)});
  return found;
}

TEST(Doctor, TheWorstCheckIsTheVerdict) {
  const Check fine = {"a", CheckState::kOk, "", "", ""};
  const Check unknown = {"b", CheckState::kUnknown, "", "", ""};
  const Check degraded = {"c", CheckState::kDegraded, "", "", ""};
  const Check missing = {"d", CheckState::kMissing, "", "", ""};
  EXPECT_EQ(verdict(with({})), CheckState::kOk);
  EXPECT_EQ(verdict(with({fine, unknown})), CheckState::kOk);
  EXPECT_EQ(verdict(with({fine, degraded, unknown})), CheckState::kDegraded);
  EXPECT_EQ(verdict(with({missing, degraded})), CheckState::kMissing);
}

TEST(Doctor, TextHasALineAndAHintForEach) {
  const std::string text = diagnosis_text(with(
      {{"memory", CheckState::kOk, "it may be read", "", ""},
       {"python", CheckState::kDegraded, "found \x1b[31m3.16", "no frames", "use 3.15\nor so"}}));
  EXPECT_EQ(text,
            "Process 42\n"
            "  ok        memory  it may be read\n"
            "  degraded  python  found \\x1b[31m3.16: no frames\n"
            "            hint: use 3.15\\nor so\n"
            "\n"
            "A recording would work, with less data: python.\n");
}

TEST(Doctor, TextSaysWhatIsNotKnown) {
  const std::string text = diagnosis_text(with({{"btf", CheckState::kUnknown, "not probed", "", ""},
                                                {"rights", CheckState::kMissing, "none", "", ""}}));
  EXPECT_NE(text.find("A recording would not work: rights.\nNot known: btf.\n"), std::string::npos)
      << text;
}

TEST(Doctor, JsonHasTheSame) {
  const auto json = to_json(with({{"python", CheckState::kDegraded, "\xff", "no frames", ""}}));
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["pid"], 42);
  EXPECT_EQ(json["recording"], "degraded");
  EXPECT_EQ(json["checks"][0]["group"], "process");
  EXPECT_EQ(json["checks"][0]["state"], "degraded");
  EXPECT_EQ(json["checks"][0]["finding"], "\\xff");
  EXPECT_EQ(json["checks"][0]["consequence"], "no frames");
  EXPECT_TRUE(json["checks"][0]["fix"].is_null());
  EXPECT_EQ(to_json(with({}))["recording"], "full");
}

TEST(Doctor, ARefusalIsUnknownOnlyWithoutTheRights) {
  const Trial trial = {.name = "x",
                       .works = "works",
                       .fails = "fails",
                       .failed = CheckState::kDegraded,
                       .consequence = "less",
                       .fix = "more"};
  EXPECT_EQ(judge_trial(trial, 0, false).state, CheckState::kOk);
  EXPECT_EQ(judge_trial(trial, EPERM, false).state, CheckState::kUnknown);
  const Check refused = judge_trial(trial, EPERM, true);
  EXPECT_EQ(refused.state, CheckState::kDegraded);
  EXPECT_EQ(refused.finding, "fails (Operation not permitted)");
  EXPECT_EQ(refused.fix, "more");
  EXPECT_EQ(judge_trial(trial, EINVAL, false).state, CheckState::kDegraded);
}

TEST(Doctor, RightsToLoadPrograms) {
  EXPECT_FALSE(own_rights(0).load_programs);
  EXPECT_FALSE(own_rights(bit(CAP_BPF)).load_programs);
  EXPECT_TRUE(own_rights(bit(CAP_BPF) | bit(CAP_PERFMON)).load_programs);
  EXPECT_FALSE(own_rights(bit(CAP_BPF) | bit(CAP_PERFMON)).admin);
  EXPECT_TRUE(own_rights(bit(CAP_SYS_ADMIN)).load_programs);
}

TEST(Doctor, Lockdown) {
  EXPECT_EQ(chosen_word("none [integrity] confidentiality\n"), "integrity");
  EXPECT_EQ(chosen_word("none"), "");
  EXPECT_EQ(chosen_word("]none["), "");
  Root root;
  EXPECT_EQ(lockdown_check(root.path()).state, CheckState::kOk);
  root.write("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
  EXPECT_EQ(lockdown_check(root.path()).finding, "mode integrity");
  root.write("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
  EXPECT_EQ(lockdown_check(root.path()).state, CheckState::kMissing);
}

TEST(Doctor, SettingsThatRestrictHaveALineOfTheirOwn) {
  Root root;
  EXPECT_TRUE(sysctl_checks(root.path(), true).empty());
  root.write("/proc/sys/kernel/perf_event_paranoid", "3\n");
  root.write("/proc/sys/kernel/kptr_restrict", "2\n");
  root.write("/proc/sys/kernel/yama/ptrace_scope", "1\n");
  root.write("/proc/sys/kernel/perf_event_max_sample_rate", "50\n");
  auto checks = sysctl_checks(root.path(), true);
  ASSERT_EQ(checks.size(), 3u);
  EXPECT_EQ(checks[0].name, "kptr_restrict");
  EXPECT_EQ(checks[0].fix, "sudo sysctl kernel.kptr_restrict=1");
  EXPECT_EQ(checks[1].name, "perf_event_max_sample_rate");
  EXPECT_EQ(checks[2].finding, "perf_event_paranoid=3 ptrace_scope=1");
  checks = sysctl_checks(root.path(), false);
  EXPECT_EQ(checks[0].name, "perf_event_paranoid");
  EXPECT_EQ(checks[0].state, CheckState::kMissing);
  root.write("/proc/sys/kernel/yama/ptrace_scope", "3\n");
  checks = sysctl_checks(root.path(), true);
  EXPECT_EQ(checks[1].state, CheckState::kMissing);
}

TEST(Doctor, Capabilities) {
  EXPECT_EQ(capability_check(~0ULL, {true, true}).state, CheckState::kOk);
  const Check none = capability_check(0, {});
  EXPECT_EQ(none.state, CheckState::kMissing);
  EXPECT_NE(none.finding.find("CAP_SYS_PTRACE"), std::string::npos);
  const Check few =
      capability_check(bit(CAP_BPF) | bit(CAP_PERFMON) | bit(CAP_SYS_PTRACE), {true, true});
  EXPECT_EQ(few.state, CheckState::kDegraded);
  EXPECT_NE(few.finding.find("CAP_SYS_ADMIN (uprobes)"), std::string::npos);
  EXPECT_EQ(few.finding.find("CAP_BPF"), std::string::npos);
}

TEST(Doctor, ContainersAndLimits) {
  Root root;
  root.write("/proc/self/status", "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n");
  root.write("/proc/self/cgroup", "0::/system.slice/a\n");
  const Check check = container_check(root.path(), false);
  EXPECT_EQ(check.finding,
            "a pid namespace below the machine's, with a seccomp filter, control group "
            "/system.slice/a");
  EXPECT_EQ(descriptor_check(64).state, CheckState::kDegraded);
  EXPECT_EQ(descriptor_check(1024).state, CheckState::kOk);
  EXPECT_EQ(disk_check("x", 1 << 20, 1 << 30).state, CheckState::kDegraded);
  EXPECT_EQ(disk_check("x", 63 << 20, 64 << 20).state, CheckState::kOk);
}

TEST(Doctor, PythonFaults) {
  PythonDiscovery details;
  details.fault = PythonFault::kUnsupported;
  const Check newer = python_fault_check(error("Python 3.16", "supported are 3.10"), details);
  EXPECT_EQ(newer.state, CheckState::kDegraded);
  EXPECT_EQ(newer.finding, "Python 3.16");
  EXPECT_EQ(newer.fix, "supported are 3.10");
  details.fault = PythonFault::kNotPython;
  EXPECT_EQ(python_fault_check(error("no"), details).state, CheckState::kMissing);
  details.fault = PythonFault::kStarting;
  EXPECT_EQ(python_fault_check(error("no"), details).state, CheckState::kUnknown);
}

TEST(Doctor, OtherTracersAndProfilers) {
  EXPECT_EQ(tracer_check("\t0").finding, "no debugger is attached");
  EXPECT_EQ(tracer_check("\t77").finding, "process 77 traces it");
  const auto said = [](std::string words) {
    std::replace(words.begin(), words.end(), ' ', '\0');
    return records(words + '\0', 4242);
  };
  EXPECT_TRUE(said("/usr/bin/dynprof-bpf --pid 4242"));
  EXPECT_TRUE(said("dynprof-bpf record -p 1,4242"));
  EXPECT_TRUE(said("dynprof-bpf --pid=4242"));
  EXPECT_TRUE(said("dynprof-bpf -p4242"));
  EXPECT_FALSE(said("dynprof-bpf -p 42"));
  EXPECT_FALSE(said("dynprof-bpf doctor -p 4242"));
  EXPECT_FALSE(said("dynprof-bpf record -- sleep 4242"));
  EXPECT_FALSE(said("python --pid 4242"));
  EXPECT_FALSE(records("", 4242));
}

TEST(Doctor, GpuTiers) {
  CudaMappings cuda;
  const Result<std::string> loadable = std::string("in some way");
  EXPECT_EQ(gpu_check(cuda, loadable).finding, "no CUDA library is mapped");
  cuda.runtime = Mapping{};
  cuda.runtime->path = "/x/libcudart.so.13";
  EXPECT_EQ(gpu_check(cuda, loadable).finding, "/x/libcudart.so.13 is mapped, no driver");
  cuda.driver = Mapping{};
  cuda.driver->path = "/x/libcuda.so.1";
  EXPECT_NE(gpu_check(cuda, loadable).consequence.find("tier 3"), std::string::npos);
  cuda.library = Mapping{};
  EXPECT_NE(gpu_check(cuda, loadable).consequence.find("tier 1"), std::string::npos);
  cuda.library.reset();
  EXPECT_NE(gpu_check(cuda, loadable).consequence.find("loads the library for times, in some way"),
            std::string::npos);
  EXPECT_NE(
      gpu_check(cuda, error("it is too old")).consequence.find("cannot be loaded: it is too old"),
      std::string::npos);
}

}  // namespace
}  // namespace dynprof
