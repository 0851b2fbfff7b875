// The nn.Modules that compiles were at, and packages that count as user code.
#include "symbolizer/attribution/compile_modules.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "symbolizer/attribution/user_packages.h"
#include "symbolizer/base/text.h"
#include "symbolizer/export/compiles_json.h"
#include "symbolizer/export/html/report_page.h"
#include "symbolizer/report/report.h"
#include "tests/unit/fake_edges.h"
#include "tests/unit/page_data.h"

namespace dynprof {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMs = 1'000'000;

class Modules : public testing::Test {
 protected:
  Modules() : thread_(fake.thread(100, 100)), edges_(fake, thread_) {
    edges_.watch();
    edges_.compile("0/0");
    edges_.begin("dynamo");
    fake.pass_ms(10);
  }
  void at(std::uint64_t ms, LineUse use, const std::string& module) {
    const UserCall line = edges_.call("/m.py", 1, "forward");
    edges_.line_sample(ms * kMs, use, line);
    LineSample sample = fake.edit_tables().line_samples.back();
    fake.edit_tables().module_samples.push_back({.time_ns = sample.time_ns,
                                                 .weight_ns = sample.weight_ns,
                                                 .thread = sample.thread,
                                                 .context = sample.context,
                                                 .use = use,
                                                 .module = fake.string(module)});
    fake.pass_ms(10);
  }
  void finish() {
    edges_.end();
    edges_.no_compile();
    fake.edit_trailer().end_ns = fake.now();
  }

  FakeRecording fake;
  ThreadId thread_;
  FakeEdges edges_;
};

TEST_F(Modules, TimeByModuleAndByWhatWasDone) {
  at(50, LineUse::kTracing, "L['self'].blocks.0.attention");
  at(30, LineUse::kLowering, "L['self'].blocks.0.attention");
  at(40, LineUse::kTracing, "L['self'].blocks.0");
  at(20, LineUse::kRetracing, "L['self'].head");
  at(0, LineUse::kTracing, "L['self'].first");  // stands for no time
  at(5, LineUse::kTracing, "");
  finish();
  Attribution attribution(fake);
  const CompileModules modules(attribution);
  const std::vector<ModuleTime>& found = modules.of(0);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].path, "self.blocks.0.attention") << "the function is not known here";
  EXPECT_EQ(found[0].sum_ns(), 80 * kMs);
  EXPECT_EQ(found[0].of(LineUse::kLowering), 30 * kMs);
  EXPECT_EQ(found[2].of(LineUse::kRetracing), 20 * kMs);
  const Analysis analysis(attribution);
  const std::string text = render_report(analysis, {});
  const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has("\n# nn.Modules: 0.14 s in which compiles were at an operator of one. ")) << text;
  EXPECT_TRUE(
      has("\n     0.140    0.000    0.090    0.020     0.030  self\n"
          "     0.120    0.000    0.090    0.000     0.030  self.blocks\n"
          "     0.120    0.040    0.090    0.000     0.030  self.blocks.0\n"
          "     0.080    0.080    0.050    0.000     0.030  self.blocks.0.attention\n"
          "     0.020    0.020    0.000    0.020     0.000  self.head\n"))
      << text;
  const Json row = Json::parse(compiles_json(analysis))["compiles"][0]["modules"];
  ASSERT_EQ(row.size(), 3u);
  EXPECT_EQ(row[0], Json::parse(R"({"path": "self.blocks.0.attention", "tracing_s": 0.05,
                                    "retracing_s": 0.0, "lowering_s": 0.03})"));
}

TEST_F(Modules, StandBelowTheOneTheyAreInByNumber) {
  for (const char* block : {"10", "9", "2"})
    at(20, LineUse::kTracing, std::string("L['self'].blocks.") + block + ".mlp");
  at(60, LineUse::kLowering, "L['self'].blocks-2");
  finish();
  Attribution attribution(fake);
  const Analysis analysis(attribution);
  PageSink sink;
  ASSERT_TRUE(write_html(analysis, {}, sink));
  const Json data = page_data(sink.text);
  const Json* modules = page_table(data, "modules");
  ASSERT_NE(modules, nullptr);
  std::vector<std::string> paths;
  for (const Json& row : (*modules)["rows"]) paths.push_back(row["cells"][0]);
  EXPECT_EQ(paths,
            (std::vector<std::string>{"self", "self.blocks", "self.blocks.2", "self.blocks.2.mlp",
                                      "self.blocks.9", "self.blocks.9.mlp", "self.blocks.10",
                                      "self.blocks.10.mlp", "self.blocks-2"}));
  const Json& all = (*modules)["rows"][0]["cells"];
  EXPECT_EQ(all[1], 120 * kMs);
  EXPECT_EQ(all[2], 100.0);
  EXPECT_EQ(all[3], 0u) << "none of it was at an operator of its own";
  EXPECT_EQ(all[4], 60 * kMs);
  EXPECT_EQ(all[6], 60 * kMs);
}

TEST_F(Modules, OfNoCompileThereIsNothing) {
  finish();
  edges_.compile("7/0");
  at(50, LineUse::kTracing, "L['self'].a");  // of a compile that is not open then
  Attribution attribution(fake);
  EXPECT_TRUE(CompileModules(attribution).of(0).empty());
  EXPECT_EQ(render_report(Analysis(attribution), {}).find("nn.Modules"), std::string::npos);
}

TEST_F(Modules, HostilePathsStayInTheirColumn) {
  for (const std::string& name :
       {std::string("\x1b[2J\n"), std::string(5000, '.'), std::string("L["), std::string("L['"),
        std::string("L['x']"), "a." + std::string(900, 'w'), std::string("\xff\xfe.\xe2\x80\xae"),
        std::string(".."), std::string("a..b")})
    at(50, LineUse::kTracing, name);
  for (int i = 0; i < 5000; ++i) at(1, LineUse::kTracing, "m" + std::to_string(i));
  finish();
  Attribution attribution(fake);
  EXPECT_LE(CompileModules(attribution).of(0).size(), 4096u);
  const Analysis analysis(attribution);
  const std::string text = render_report(analysis, {});
  const std::size_t begin = text.find("# nn.Modules");
  ASSERT_NE(begin, std::string::npos);
  std::size_t at = begin;
  for (std::size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string line = text.substr(at, end - at);
    EXPECT_LE(display_width(line), 100u) << line;
    EXPECT_EQ(escape_terminal(line), line);
  }
  EXPECT_FALSE(compiles_json(analysis).empty());
}

TEST(ModulePath, StandsForTheVariableItBeginsWith) {
  EXPECT_EQ(module_path("L['self'].blocks.0", "Transformer.forward"), "Transformer.blocks.0");
  EXPECT_EQ(module_path("L['self'].blocks.0", "f.<locals>.Net.forward"), "Net.blocks.0");
  EXPECT_EQ(module_path("L['self']", "Transformer.forward"), "Transformer");
  EXPECT_EQ(module_path("L['self'].a", "forward"), "self.a");
  EXPECT_EQ(module_path("L['self'].a", "make.<locals>.forward"), "self.a");
  EXPECT_EQ(module_path("L['self'].a", ""), "self.a");
  EXPECT_EQ(module_path("G[\"model\"].encoder", "step"), "model.encoder");
  EXPECT_EQ(module_path("something.else", "step"), "something.else");
  EXPECT_EQ(module_path("L['open", "step"), "L['open");
  EXPECT_EQ(module_path("", "step"), "");
}

TEST(UserPackages, AreWholePartsOfAPath) {
  const std::vector<std::string> packages = {"transformers", "my.sub", ""};
  EXPECT_TRUE(is_in_package("/v/site-packages/transformers/models/bert.py", packages));
  EXPECT_TRUE(is_in_package("/v/site-packages/transformers.py", packages));
  EXPECT_TRUE(is_in_package("/v/site-packages/my/sub/x.py", packages));
  EXPECT_FALSE(is_in_package("/v/site-packages/my/x.py", packages));
  EXPECT_FALSE(is_in_package("/v/site-packages/mytransformers/x.py", packages));
  EXPECT_FALSE(is_in_package("/v/site-packages/transformers2/x.py", packages));
  EXPECT_FALSE(is_in_package("", packages));
  EXPECT_FALSE(is_in_package("/v/x.py", {}));
}

}  // namespace
}  // namespace dynprof
