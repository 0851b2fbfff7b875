// Child processes as jobs: what each compiler was for, what is done once, and the memory they had.
#include "symbolizer/attribution/process_jobs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "symbolizer/export/compiles_json.h"
#include "symbolizer/report/report.h"
#include "tests/unit/fake_edges.h"

namespace dynprof {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMs = 1'000'000, kMib = 1 << 20;
constexpr std::int32_t kTarget = 100;
const std::string kKernel = "/c/vb/cvbmzvi5gtrx4nyej55g2vwertttqo3i7ikdxjkif7mbwwfopkjo";
const std::string kProbe = "/c/73/c73ehsvuqgg4ajaapbuvlpudb53lhe3dlyle6lngn4oa7lkwtgjf";

std::string line(std::initializer_list<std::string_view> arguments) {
  std::string text;
  for (std::string_view argument : arguments) text += std::string(argument) + '\0';
  text.pop_back();
  return text;
}

// A compile of 1000 ms; children by their millisecond in it.
class ProcessJobsTest : public testing::Test {
 protected:
  ProcessJobsTest() : thread_(fake.thread(kTarget, kTarget)), edges_(fake, thread_) {
    row({.time_ns = fake.meta().start_ns, .pid = kTarget, .kind = LifeKind::kThere});
    edges_.watch();
    edges_.compile("0/0");
    begin_ = fake.now();
    edges_.phase("dynamo", 1000);
    edges_.no_compile();
    fake.edit_trailer().end_ns = fake.now();
  }

  void row(const ProcessLife& life) { fake.edit_tables().lives.push_back(life); }
  void peak(std::uint64_t time_ns, std::int32_t pid, PeakOf of, std::uint64_t bytes) {
    fake.edit_tables().memory_peaks.push_back(
        {.time_ns = time_ns, .pid = pid, .of = of, .bytes = bytes});
  }
  // A process that ran from one millisecond to another.
  void child(std::int32_t pid, std::int32_t parent, std::uint64_t from_ms, std::uint64_t to_ms,
             const std::string& command, std::uint64_t cpu_ms, std::uint64_t peak_bytes = 0) {
    const std::uint64_t from = begin_ + from_ms * kMs, to = begin_ + to_ms * kMs;
    row({.time_ns = from, .pid = pid, .parent_pid = parent, .parent_tid = parent});
    row({.time_ns = from,
         .pid = pid,
         .kind = LifeKind::kExec,
         .exe = fake.string(command.substr(0, command.find('\0'))),
         .command_line = fake.string(command)});
    ends_.push_back({.time_ns = to, .pid = pid, .kind = LifeKind::kExit, .cpu_ns = cpu_ms * kMs});
    if (peak_bytes != 0) peak(to, pid, PeakOf::kProgram, peak_bytes);
  }
  // Rows are by time when a recording was read.
  void finish() {
    Tables& tables = fake.edit_tables();
    tables.lives.insert(tables.lives.end(), ends_.begin(), ends_.end());
    ends_.clear();
    std::stable_sort(
        tables.lives.begin(), tables.lives.end(),
        [](const ProcessLife& a, const ProcessLife& b) { return a.time_ns < b.time_ns; });
    std::stable_sort(
        tables.memory_peaks.begin(), tables.memory_peaks.end(),
        [](const MemoryPeak& a, const MemoryPeak& b) { return a.time_ns < b.time_ns; });
  }
  void probe_and_kernel() {
    child(200, kTarget, 100, 300, line({"g++", kProbe + ".cpp", "-o", kProbe + ".so"}), 1, kMib);
    child(201, 200, 110, 290, line({"/usr/lib/cc1plus", kProbe + ".cpp"}), 150, 300 * kMib);
    child(202, kTarget, 310, 350, line({"python", "-c", "cdll.LoadLibrary(\"" + kProbe + ".so\")"}),
          30);
    child(203, kTarget, 400, 700, line({"g++", "-include", kProbe + ".h", kKernel + ".main.cpp"}),
          2, kMib);
    child(204, 203, 410, 600, line({"/usr/lib/cc1plus", kKernel + ".main.cpp"}), 180, 200 * kMib);
    child(205, 203, 610, 690, line({"ld", "/tmp/cc7.o"}), 60, 20 * kMib);
    finish();
    fake.edit_tables().facts.push_back(
        {.pid = kTarget,
         .kind = fake.string("generated"),
         .name = fake.string(R"({"kind": "kernel_source", "origin": ")" + kKernel +
                             R"(.main.cpp", "name": "k.cpp", "kernel": "cpp_fused_add_gelu_0"})")});
  }

  FakeRecording fake;
  ThreadId thread_;
  FakeEdges edges_;
  std::uint64_t begin_ = 0;
  std::vector<ProcessLife> ends_;
};

TEST_F(ProcessJobsTest, ACompilerAndWhatItStartsAreOneJob) {
  probe_and_kernel();
  Attribution attribution(fake);
  ProcessTree tree(attribution);
  ProcessJobs jobs(attribution, tree);
  ASSERT_EQ(jobs.all().size(), 3u);
  const ProcessJob& compiled = jobs.all()[0];
  EXPECT_EQ(compiled.purpose, Purpose::kIsaProbe) << "by the Python that loads what it makes";
  EXPECT_EQ(compiled.processes, 2u);
  EXPECT_EQ(compiled.cpu_ns, 151 * kMs);
  EXPECT_EQ(compiled.peak_bytes, 300 * kMib);
  EXPECT_EQ(jobs.all()[1].purpose, Purpose::kIsaProbe);
  const ProcessJob& kernel = jobs.all()[2];
  EXPECT_EQ(kernel.purpose, Purpose::kKernel);
  EXPECT_EQ(kernel.kernel, "cpp_fused_add_gelu_0");
  EXPECT_EQ(kernel.processes, 3u);
  EXPECT_EQ(kernel.cpu_ns, 242 * kMs);
  EXPECT_EQ(kernel.compile, 0u);
  EXPECT_EQ(jobs.purpose(5), Purpose::kKernel) << "ld has no source of its own";
}

TEST_F(ProcessJobsTest, OneOffTimeIsWallTimeCountedOnce) {
  probe_and_kernel();
  // At the same time as the first.
  child(206, kTarget, 250, 320, line({"g++", "--version"}), 1);
  finish();
  Attribution attribution(fake);
  ProcessTree tree(attribution);
  const ProcessJobs::OneOff once = ProcessJobs(attribution, tree).one_off(0);
  EXPECT_EQ(once.wall_ns, 250 * kMs);
  ASSERT_EQ(once.by_purpose.size(), 2u);
  EXPECT_EQ(once.by_purpose[0], std::pair(Purpose::kIsaProbe, 240 * kMs));
  EXPECT_EQ(once.by_purpose[1], std::pair(Purpose::kVersion, 70 * kMs));
}

TEST_F(ProcessJobsTest, TheReportHasThem) {
  probe_and_kernel();
  peak(begin_ + 1000 * kMs, kTarget, PeakOf::kProgram, 900 * kMib);
  finish();
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  const std::string text = render_report(analysis, {});
  const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has("\n  One-off        0.24 s (24 %), cached: instruction-set probe 0.24 s\n"))
      << text;
  EXPECT_TRUE(
      has("\n# CPU time of these by purpose: kernel 0.24 s; one-off 0.18 s "
          "(instruction-set probe 0.18 s)\n"))
      << text;
  EXPECT_TRUE(
      has("\n# Most memory of one process: pid 100 900 MiB, cc1plus 300 MiB, ld 20 MiB, "
          "g++ 1 MiB\n"))
      << text;
  EXPECT_TRUE(
      has("\n    0.242     0.300      1       200  0/0           kernel "
          "cpp_fused_add_gelu_0\n"))
      << text;
  EXPECT_TRUE(
      has("\n    0.181     0.240      2       300  0/0           one-off: "
          "instruction-set probe\n"))
      << text;
  const std::string page = render_report(analysis, {.compiles = {0}});
  EXPECT_NE(page.find("g++ for kernel cpp_fused_add_gelu_0 (0."), std::string::npos) << page;
}

TEST_F(ProcessJobsTest, TheLedgerHasThem) {
  probe_and_kernel();
  peak(begin_ + 1000 * kMs, kTarget, PeakOf::kProgram, 900 * kMib);
  finish();
  Attribution attribution(fake);
  const Json document = Json::parse(compiles_json(Analysis(attribution)));
  const Json& row = document["compiles"][0];
  EXPECT_DOUBLE_EQ(row["one_off_s"].get<double>(), 0.24);
  const Json& probe = row["children"][0];
  EXPECT_EQ(probe["purpose"], "instruction-set probe");
  EXPECT_EQ(probe["one_off"], true);
  EXPECT_EQ(probe["kernel"], nullptr);
  EXPECT_EQ(probe["peak_rss_bytes"], kMib);
  const Json& linker = row["children"][5];
  EXPECT_EQ(linker["purpose"], "kernel");
  EXPECT_EQ(linker["kernel"], "cpp_fused_add_gelu_0");
  EXPECT_EQ(row["children"][2]["peak_rss_bytes"], nullptr) << "not known is not zero";
  EXPECT_EQ(document["processes"]["targets"],
            Json::parse(R"([{"pid": 100, "peak_rss_bytes": 943718400}])"));
}

TEST_F(ProcessJobsTest, MemoryOfAnEarlierProgramIsNotItsOwn) {
  child(200, kTarget, 100, 300, line({"g++", "a.cpp"}), 1);
  child(201, kTarget, 310, 400, line({"g++", "b.cpp"}), 1);
  child(200, kTarget, 500, 600, line({"g++", "c.cpp"}), 1);  // the pid again
  finish();
  // A vfork has its parent's 800 MiB until it runs g++.
  peak(begin_ + 100 * kMs, 200, PeakOf::kBeforeExec, 800 * kMib);
  peak(begin_ + 300 * kMs, 200, PeakOf::kProcess, 800 * kMib);
  peak(begin_ + 310 * kMs, 201, PeakOf::kBeforeExec, 800 * kMib);
  peak(begin_ + 400 * kMs, 201, PeakOf::kProcess, 900 * kMib);
  peak(begin_ + 600 * kMs, 200, PeakOf::kProgram, 30 * kMib);
  Attribution attribution(fake);
  ProcessTree tree(attribution);
  ASSERT_EQ(tree.all().size(), 3u);
  EXPECT_EQ(tree.all()[0].peak_bytes, 0u) << "at most that, but how much is not known";
  EXPECT_EQ(tree.all()[1].peak_bytes, 900 * kMib);
  EXPECT_EQ(tree.all()[2].peak_bytes, 30 * kMib);
}

TEST_F(ProcessJobsTest, HostileNamesStayInTheirRow) {
  child(200, kTarget, 100, 300, line({"g++", kKernel + ".main.cpp"}), 1, UINT64_MAX);
  child(201, kTarget, 310, 400, line({"\x1b[2J\n", std::string(900, 'x') + ".cpp"}), 1, 1);
  finish();
  fake.edit_tables().facts.push_back(
      {.pid = kTarget,
       .kind = fake.string("generated"),
       .name =
           fake.string(R"({"kind": "kernel_source", "origin": ")" + kKernel +
                       R"(.cpp", "kernel": "\u001b[31m\n\u202e)" + std::string(400, 'w') + "\"}")});
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  for (const ReportOptions& options : {ReportOptions{}, ReportOptions{.compiles = {0}}}) {
    const std::string text = render_report(analysis, options);
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    std::size_t begin = 0;
    for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      EXPECT_LE(end - begin, 110u) << text.substr(begin, end - begin);
  }
  EXPECT_FALSE(compiles_json(analysis).empty());
}

}  // namespace
}  // namespace dynprof
