#include <gtest/gtest.h>

#include <string>

#include "user/generated/collector.h"
#include "user/generated/guard_reasons.h"
#include "user/generated/inductor_files.h"
#include "user/generated/names.h"

namespace dynprof {
namespace {

TEST(GeneratedNames, AWrapperSaysItsGraphAndDirection) {
  EXPECT_EQ(parse_aot_id("# AOT ID: ['0_forward']\nimport torch\n"),
            (AotId{"0", GeneratedDirection::kForward}));
  EXPECT_EQ(parse_aot_id("# AOT ID: ['17_backward']"),
            (AotId{"17", GeneratedDirection::kBackward}));
  EXPECT_EQ(parse_aot_id("# AOT ID: ['3_inference']\n"),
            (AotId{"3", GeneratedDirection::kInference}));
}

TEST(GeneratedNames, OtherFirstLinesAreNoWrapper) {
  for (const char* source :
       {"", "\n# AOT ID: ['0_forward']\n", "# AOT ID: ['0_forward", "# AOT ID: ['_forward']",
        "# AOT ID: ['0_sideways']", "# AOT ID: [0_forward]", "# AOT ID: ['0_forwardly']",
        "# AOT ID: ['x_forward']", "#include <torch/extension.h>", "# AOT ID: ['1234567"}) {
    EXPECT_FALSE(parse_aot_id(source)) << source;
  }
}

TEST(GeneratedNames, TraceIdsAreWhatTorchPrints) {
  for (const char* id : {"0/0", "12/345", "!0", "!7/1/0"}) EXPECT_TRUE(is_trace_id(id)) << id;
  for (const char* id : {"", "0", "0/", "/0", "0/0/0", "!", "!/0/0", "!1/0", "0/0 ", "-1/0", "a/b",
                         "../..", "0/1234567890123456789"}) {
    EXPECT_FALSE(is_trace_id(id)) << id;
  }
}

TEST(GeneratedNames, ADirectoryPerTraceId) {
  EXPECT_EQ(trace_id_directory("0/0"), "0_0");
  EXPECT_EQ(trace_id_directory("!1/0/2"), "!1_0_2");
  EXPECT_EQ(trace_id_directory(""), "unknown");
  EXPECT_EQ(trace_id_directory("../../etc").find('/'), std::string::npos);
  EXPECT_NE(trace_id_directory("..")[0], '.');
}

TEST(GeneratedNames, FileNamesAreSafeAndTheirOwn) {
  FileNames names;
  EXPECT_EQ(names.make("0/0", "forward_wrapper", ".py"), "forward_wrapper.py");
  EXPECT_EQ(names.make("0/0", "forward_wrapper", ".py"), "forward_wrapper_2.py");
  EXPECT_EQ(names.make("0/0", "Forward_Wrapper", ".py"), "Forward_Wrapper_3.py");
  EXPECT_EQ(names.make("1/0", "forward_wrapper", ".py"), "forward_wrapper.py");
  for (std::string hint : {"../../etc/passwd", "/abs", "..", ".hidden", "-rf", "a\nb\x1b[31m", "",
                           "\xff\xfe", "nul\0byte"}) {
    std::string name = names.make("0/0", hint, ".txt");
    EXPECT_EQ(name.find_first_of(std::string_view("/\n\x1b\0\xff", 5)), std::string::npos) << name;
    EXPECT_TRUE(name[0] != '.' && name[0] != '-') << name;
    EXPECT_LE(name.size(), 120u);
  }
  std::string longest = names.make("0/0", std::string(5000, 'x'), ".py");
  EXPECT_LE(longest.size(), 120u);
  EXPECT_TRUE(longest.ends_with(".py"));
}

TEST(GeneratedNames, OnlySourceFilesAreRead) {
  EXPECT_EQ(source_extension("/t/aa/c1.py"), ".py");
  EXPECT_EQ(source_extension("/t/aa/c1.main.cpp"), ".cpp");
  for (const char* path : {"/etc/shadow", "/t/.py", "/t/x.so", "/t/x.py/", "", "/t/x.pyc"}) {
    EXPECT_FALSE(source_extension(path)) << path;
  }
}

TEST(GeneratedNames, AKernelLiesInTheWrappersCache) {
  const std::string wrapper = "/cache/yb/c1.py";
  EXPECT_EQ(kernel_source_path("/cache/oy/c2.main.so", wrapper), "/cache/oy/c2.main.cpp");
  EXPECT_EQ(kernel_source_path("/cache/yb/c2.so", wrapper), "/cache/yb/c2.cpp");
  EXPECT_EQ(kernel_source_path("/usr/lib/python3/torch/_C.so", wrapper), "");
  EXPECT_EQ(kernel_source_path("/cache/oy/c2.py", wrapper), "");
  EXPECT_EQ(kernel_source_path("", wrapper), "");
}

TEST(GeneratedNames, AGuardAndItsReason) {
  auto found = split_verbose_guard("L['k'] == 2          # return x * k  # model.py:15 in scale");
  EXPECT_EQ(found.guard, "L['k'] == 2");
  EXPECT_EQ(found.reason, "return x * k  # model.py:15 in scale");
  EXPECT_EQ(split_verbose_guard("a  #  # f.py:1 in g ").reason, "f.py:1 in g");
  EXPECT_EQ(split_verbose_guard("a").guard, "a");
  for (const char* text : {"", "#", "a", "a #", "a # "}) {
    EXPECT_EQ(split_verbose_guard(text).reason, "") << text;
  }
}

TEST(GeneratedNames, DynamosGlobals) {
  EXPECT_TRUE(is_compiled_fn("__compiled_fn_3_0dcd12ad_efb2"));
  EXPECT_TRUE(is_resume_point("__resume_at_138_3"));
  EXPECT_FALSE(is_compiled_fn("__builtins_dict___1"));
  EXPECT_FALSE(is_resume_point("resume_at_138_3"));
}

GeneratedFile file_of(std::size_t size) {
  GeneratedFile file;
  file.trace_id = "0/0";
  file.content = std::string(size, 'x');
  return file;
}

TEST(GeneratedCollector, KeepsToItsLimits) {
  GeneratedLimits limits;
  limits.file_bytes = 100;
  limits.total_bytes = 250;
  limits.files = 4;
  Collector collector(limits);
  collector.add(file_of(10), "a", ".py");
  EXPECT_EQ(collector.room(), 100u);
  collector.add(file_of(1000), "a", ".py");
  collector.add(file_of(100), "b", ".py");
  EXPECT_EQ(collector.room(), 40u);
  collector.add(file_of(100), "b", ".py");
  EXPECT_FALSE(collector.place());
  collector.add(file_of(1), "c", ".py");
  GeneratedCode code = collector.take();
  ASSERT_EQ(code.files.size(), 4u);
  EXPECT_FALSE(code.files[0].truncated);
  EXPECT_EQ(code.files[1].content.size(), 100u);
  EXPECT_TRUE(code.files[1].truncated);
  EXPECT_FALSE(code.files[2].truncated);
  EXPECT_EQ(code.files[3].content.size(), 40u);
  EXPECT_TRUE(code.files[3].truncated);
  EXPECT_EQ(code.files[3].name, "b_2.py");
  ASSERT_EQ(code.missing.size(), 1u);
  EXPECT_EQ(code.missing[0], "files beyond 4 of them, or 0 MB in all");
}

}  // namespace
}  // namespace dynprof
