// What a process was started for, by its command line.
#include "symbolizer/attribution/process_purpose.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dynprof {
namespace {

const std::string kHash = "cvbmzvi5gtrx4nyej55g2vwertttqo3i7ikdxjkif7mbwwfopkjo";

std::string line(std::initializer_list<std::string_view> arguments) {
  std::string text;
  for (std::string_view argument : arguments) text += std::string(argument) + '\0';
  text.pop_back();
  return text;
}

std::string probe(const std::string& library) {
  return "\nimport sys\nfrom ctypes import cdll\ncdll.LoadLibrary(\"" + library + "\")\n";
}

// One command line for each rule, in the order of the rules, as torch 2.13 and Triton 3.2 write them.
struct Case {
  const char* rule;
  std::string command;
  Purpose purpose;
};

std::vector<Case> cases() {
  const std::string source = "/c/vb/" + kHash + ".main.cpp";
  return {
      {"compile worker",
       line({"python", "/v/torch/_inductor/compile_worker/__main__.py", "--parent=77"}),
       Purpose::kWorker},
      {"autotuning process",
       line({"python", "/v/torch/_inductor/__autotune_main__.py", "--parent=77"}),
       Purpose::kAutotuning},
      {"loading a probe", line({"python", "-c", probe("/c/73/c73.so")}), Purpose::kIsaProbe},
      {"compiler version", line({"x86_64-linux-gnu-g++-12", "--version"}), Purpose::kVersion},
      {"checksum of a header", line({"openssl", "sha512", "/tmp/tmpxh/header.i"}),
       Purpose::kHeader},
      {"precompiled header", line({"g++", "/tmp/tmpxh/header.hpp", "-E", "-o", "/tmp/header.i"}),
       Purpose::kHeader},
      {"Triton's driver",
       line({"gcc", "/tmp/t/main.c", "-O3", "-o", "/tmp/t/cuda_utils.cpython-311.so"}),
       Purpose::kTritonDriver},
      {"Triton's launcher",
       line({"gcc", "/tmp/t/main.c", "-O3", "-o", "/tmp/t/__triton_launcher.cpython-311.so"}),
       Purpose::kLauncher},
      {"assembler", line({"ptxas", "-lineinfo", "/tmp/t.ptx", "-o", "/tmp/t.o"}),
       Purpose::kAssembler},
      {"generated code",
       line({"/usr/lib/gcc/cc1plus", "-quiet", "-include", "/c/" + kHash + ".h", source}),
       Purpose::kKernel},
  };
}

TEST(ProcessPurpose, EachRuleDecidesACommandOfItsKind) {
  const std::vector<Case> all = cases();
  std::set<std::string> tried;
  for (const Case& one : all) {
    EXPECT_EQ(purpose_of(one.command, ""), one.purpose) << one.rule;
    tried.insert(one.rule);
  }
  std::set<std::string> rules;
  for (const PurposeRule& rule : purpose_rules()) rules.insert(rule.name);
  EXPECT_EQ(tried, rules);
}

TEST(ProcessPurpose, WhatIsNoRulesBusinessIsOther) {
  const std::string source = "/c/vb/" + kHash + ".main.cpp";
  const std::vector<std::string> others = {
      "",
      line({"python", "-c", "import ctypes"}),
      line({"python", "-c", "cdll.LoadLibrary(\"/no/end"}),
      line({"python", "-c"}),
      line({"g++", "-v", "main.cpp"}),
      line({"g++", "-v", "-v", "-v", "-v"}),
      line({"g++"}),
      line({"g++", "main.cpp"}),
      line({"g++", "-o", source}),
      line({"mygcc", source}),
      line({"cat", source}),
      line({"cat", "/tmp/header.i"}),
      line({"gcc", "main.c", "-o"}),
      line({"sh", "/v/torch/_inductor/compile_worker/__main__.py"}),
  };
  for (const std::string& command : others)
    EXPECT_EQ(purpose_of(command, ""), Purpose::kOther) << command;
  // The program that is run counts, not what it calls itself.
  EXPECT_EQ(purpose_of(line({"g++", source}), "cat"), Purpose::kOther);
  EXPECT_EQ(purpose_of(line({"anything", source}), "g++"), Purpose::kKernel);
}

TEST(ProcessPurpose, HashesOfInductor) {
  EXPECT_EQ(inductor_hash("/c/vb/" + kHash + ".main.cpp"), kHash);
  EXPECT_EQ(inductor_hash(kHash), kHash);
  EXPECT_EQ(inductor_hash("/c/main.cpp"), "");
  EXPECT_EQ(inductor_hash(std::string(52, 'C') + ".cpp"), "");
  EXPECT_EQ(inductor_hash("c" + std::string(51, '1')), "") << "1 is not in base 32";
  EXPECT_EQ(inductor_hash(""), "");
}

TEST(ProcessPurpose, EachHasATextAndNoTwoShareOne) {
  std::set<std::string> texts;
  for (int i = 0; i <= static_cast<int>(Purpose::kTritonDriver); ++i)
    texts.insert(purpose_text(static_cast<Purpose>(i)));
  EXPECT_EQ(texts.size(), static_cast<std::size_t>(Purpose::kTritonDriver) + 1);
}

}  // namespace
}  // namespace dynprof
