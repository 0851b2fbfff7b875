// The directory made from a recording: what compiles no sample hit leave in it, and generated code
// with names no file should have.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "symbolizer/recording/writer.h"
#include "tests/unit/recording_example.h"
#include "user/cli/outputs.h"

namespace dynprof {
namespace {

namespace fs = std::filesystem;

struct OutputsTest : testing::Test {
  fs::path folder;
  std::unique_ptr<RecordingWriter> writer;
  std::optional<OutputDirectory> out;

  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "dynprof-outputs-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
    auto made = OutputDirectory::create((folder / "out").string());
    ASSERT_TRUE(made);
    out.emplace(std::move(*made));
    auto file = out->plain_file(kRecordingName);
    ASSERT_TRUE(file);
    writer = *RecordingWriter::create(std::move(*file), example_meta());
  }
  void TearDown() override { fs::remove_all(folder); }

  void generated(const std::string& id, const std::string& name, const std::string& content) {
    nlohmann::json description{{"trace_id", id}, {"kind", "wrapper"}, {"name", name}};
    Fact fact;
    fact.pid = 4242;
    fact.kind = writer->string("generated");
    fact.name = writer->string(description.dump());
    fact.body = writer->blob(content);
    writer->fact(fact);
  }
  void write() {
    Trailer trailer;
    trailer.reason = "interrupted";
    ASSERT_TRUE(writer->finish(trailer));
    Terminal quiet(true);
    OutputOptions options;
    options.call_graphs = false;
    auto recording = out->readable(kRecordingName);
    ASSERT_TRUE(recording);
    auto done = write_outputs(*out, std::move(*recording), options, quiet);
    EXPECT_TRUE(done) << done.error().what;
  }
  std::set<std::string> files() const {
    std::set<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) found.insert(fs::relative(entry.path(), folder).string());
    }
    return found;
  }
  std::string slurp(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder / name).rdbuf();
    return text.str();
  }
};

TEST_F(OutputsTest, GeneratedCodeGoesNowhereElse) {
  generated("0/0", "wrapper.py", "one");
  generated("0/0", "wrapper.py", "two");
  generated("0/0", "../../../outside.py", "three");
  generated("0/0", "/etc/passwd", "four");
  generated("0/0", "..", "five");
  generated("../..", "x.py", "six");
  generated("0/0", std::string(5000, 'a'), "seven");
  generated("1/0", std::string("nul\0byte\n", 9), "");
  write();
  std::set<std::string> names = files();
  EXPECT_EQ(slurp("out/generated/0_0/wrapper.py"), "one");
  EXPECT_EQ(slurp("out/generated/0_0/wrapper_2.py"), "two");
  EXPECT_EQ(slurp("out/generated/unknown/x.py"), "six");
  EXPECT_TRUE(names.contains("out/generated/1_0/nul_byte_"));
  std::size_t count = 0;
  for (const std::string& name : names) {
    EXPECT_TRUE(name.starts_with("out/")) << name;
    EXPECT_LE(fs::path(name).filename().string().size(), 100u);
    if (!name.starts_with("out/generated/")) continue;
    ++count;
    struct stat info = {};
    ASSERT_EQ(::stat((folder / name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
  }
  // Each compile has a page, each wrapper of a known one the plan of its kernels.
  EXPECT_EQ(count, 8u + 2u + 7u);
  EXPECT_NE(slurp("out/generated/0_0/index.md").find("[wrapper_2.py](wrapper_2.py)"),
            std::string::npos);
  EXPECT_TRUE(names.contains("out/generated/0_0/wrapper_2_plan.json"));
}

TEST_F(OutputsTest, ACompileThatOnlyEdgesShow) {
  ThreadId thread = writer->thread(Thread{.pid = 4242, .tid = 4242});
  TorchState state{TorchStatus::kRead, -1, 0, 0, 0, {}};
  for (EdgeKind kind : {EdgeKind::kPhaseBegin, EdgeKind::kPhaseEnd}) {
    SpanEdge edge;
    edge.time_ns = 6'000'000'000 + static_cast<std::uint64_t>(kind) * 1'000'000;
    edge.thread = thread;
    edge.kind = kind;
    edge.name = writer->string("dynamo");
    edge.depth = 1;
    edge.context = writer->context(Context{{}, state});
    writer->edge(edge);
  }
  write();
  EXPECT_EQ(files(),
            (std::set<std::string>{"out/compiles.json", "out/recording.dynprof", "out/report.html",
                                   "out/report.txt", "out/trace.json.gz"}));
  auto ledger = nlohmann::json::parse(slurp("out/compiles.json"));
  ASSERT_EQ(ledger["compiles"].size(), 1u);
  EXPECT_EQ(ledger["compiles"][0]["trace_id"], "0/0");
  EXPECT_EQ(ledger["compiles"][0]["wall_s"], 0.001);
}

}  // namespace
}  // namespace dynprof
