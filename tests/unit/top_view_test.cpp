// The lines of `top` for screens of several sizes, and the keys that move between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "symbolizer/base/text.h"
#include "tests/unit/top_example.h"
#include "user/cli/top_keys.h"
#include "user/top/pages.h"
#include "user/top/view.h"

namespace dynprof {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using namespace testing;

struct Size {
  std::size_t width, height;
};
constexpr Size kSizes[] = {{80, 24}, {120, 40}, {40, 10}, {20, 5}, {1, 1}, {300, 100}};
constexpr TopPage kPages[] = {TopPage::kCompiles, TopPage::kFinished, TopPage::kProcesses,
                              TopPage::kFunctions, TopPage::kHelp};

TopState example(int seconds_later = 2) {
  TopModel model;
  model.add(example_reading(100));
  model.add(example_reading(100 + seconds_later));
  return model.state();
}

TopViewOptions options(Size size, TopPage page = TopPage::kCompiles) {
  TopViewOptions out;
  out.width = size.width;
  out.height = size.height;
  out.page = page;
  return out;
}

std::string text_of(const std::vector<TopLine>& lines) {
  std::string text;
  for (const TopLine& line : lines) text += line.text + '\n';
  return text;
}

std::string screen(const TopState& state, TopViewOptions view) {
  return text_of(top_screen(state, view));
}

void expect_fits(const TopState& state) {
  for (Size size : kSizes) {
    for (TopPage page : kPages) {
      TopViewOptions view = options(size, page);
      const auto lines = top_screen(state, view);
      EXPECT_LE(lines.size(), size.height);
      for (const TopLine& line : lines) {
        EXPECT_LE(display_width(line.text), size.width) << line.text;
        EXPECT_EQ(line.text, escape_terminal(line.text));
      }
    }
  }
}

TEST(TopView, FitsEverySize) {
  expect_fits(TopModel().state());
  expect_fits(example());
  expect_fits(example(45));
}

TEST(TopView, HostileNamesAndTwoThousandProcessesFitToo) {
  TopReading reading = example_reading(100);
  const std::string bad = "\x1b[2J\n\r\xff\xe2\x80\xae" + std::string(70'000, 'x');
  reading.target.command = reading.target.python = bad;
  reading.target.torch = bad;
  OpenCompile& open = reading.open[0];
  open.thread = open.id = open.phase = open.activity = bad;
  open.function = {bad, bad, INT32_MAX};
  open.at = open.function;
  open.age_s = 1e300;
  open.node = open.nodes = SIZE_MAX;
  open.wait = TopWait::kOther;
  open.wait_text = bad;
  reading.finished[0].id = reading.finished[0].recompile_reason = reading.finished[0].failure = bad;
  reading.finished[0].cache = bad;
  reading.finished[0].function = open.function;
  reading.finished[0].end_us = INT64_MAX;
  reading.problems = reading.functions.problems = {bad};
  reading.functions.rows[0].place = open.function;
  reading.functions.rows[0].now.cpu_self_s = 1e300;
  for (int i = 0; i < 2000; ++i)
    reading.processes.push_back(compiler(1000 + i, 100, 100, bad.substr(0, 200).c_str()));
  TopModel model;
  model.add(reading);
  reading.time_s = reading.details_time_s = 140;
  model.add(reading);
  EXPECT_EQ(model.state().stalls.size(), 2u);
  expect_fits(model.state());
  const std::string text = top_text(model.state(), 100);
  EXPECT_THAT(text, HasSubstr("and 1962 more"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(TopView, AnOrdinaryScreenHasEverything) {
  const std::string text = screen(example(45), options({80, 24}));
  EXPECT_THAT(
      text,
      StartsWith("Process 100: python train.py\n"
                 "Python 3.11.2, torch 2.13.0+cpu; running, up 2:05, CPU 100 %, 23 threads\n"
                 "Memory 1.2 GB (peak 1.3 GB); 2 child processes: 100.0 MB, CPU 0 %\n"
                 "This program: CPU 1.0 %, 100 reads/s\n"
                 "Compiles: 1 open, 1 thread waiting for the compile lock, 2 finished in 14.4 s\n"
                 "0/1 (step train.py:40) has not advanced for 45.0 s: "));
  EXPECT_THAT(text, HasSubstr("\n0/1     step "));
  EXPECT_THAT(text, HasSubstr("\n(waits) serve "));
  EXPECT_THAT(text, HasSubstr("13.87 s inductor 50 %, "));
  EXPECT_THAT(text, HasSubstr("\nq quit  h help  c compiles"));
}

TEST(TopView, NarrowScreensKeepWhatMatters) {
  const std::string narrow = screen(example(), options({40, 10}));
  EXPECT_THAT(narrow, AllOf(HasSubstr("Process 100"), HasSubstr("0/1"), HasSubstr("inductor"),
                            HasSubstr("12.3 s")));
  const std::string tiny = screen(example(45), options({20, 5}));
  EXPECT_THAT(tiny,
              AllOf(HasSubstr("Process 100: python"), HasSubstr("0/1"), HasSubstr("inductor")));
}

TEST(TopView, SaysWhatIsNotThere) {
  TopReading reading = example_reading(100);
  reading.open.clear();
  reading.finished.clear();
  reading.processes.clear();
  TopModel model;
  model.add(reading);
  std::string text = top_text(model.state(), 80);
  EXPECT_THAT(text, AllOf(HasSubstr("No compile is open."), HasSubstr("No compile has finished."),
                          HasSubstr("There are no child processes."),
                          HasSubstr("no child process\n"), HasSubstr("CPU -")));
  reading.target.torch.reset();
  TopModel without;
  without.add(reading);
  text = top_text(without.state(), 80);
  EXPECT_THAT(text,
              AllOf(HasSubstr("Python 3.11.2, no torch;"), HasSubstr("torch is not imported.")));
}

TEST(TopView, SaysWhenWhatItShowsIsOld) {
  TopModel model;
  model.add(example_reading(100));
  TopReading later = example_reading(105);
  later.details_time_s = 100;
  model.add(later);
  EXPECT_THAT(top_text(model.state(), 100), HasSubstr("; what is below was read 5.0 s ago\n"));
}

TEST(TopView, PagesAndOrders) {
  const TopState state = example();
  EXPECT_THAT(screen(state, options({120, 40}, TopPage::kFinished)),
              AllOf(HasSubstr("miss"), HasSubstr("size mismatch"), HasSubstr("s sort: newest")));
  EXPECT_THAT(
      screen(state, options({120, 40}, TopPage::kProcesses)),
      AllOf(HasSubstr("cc1plus main.cpp"), HasSubstr("compiler"), HasSubstr("s sort: CPU")));
  EXPECT_THAT(screen(state, options({120, 40}, TopPage::kHelp)), HasSubstr("freeze what is shown"));
  EXPECT_EQ(sort_count(TopPage::kCompiles), 2u);
  EXPECT_EQ(sort_count(TopPage::kFinished), 2u);
  EXPECT_EQ(sort_count(TopPage::kProcesses), 4u);
  EXPECT_EQ(sort_count(TopPage::kFunctions), 9u);
  EXPECT_EQ(sort_count(TopPage::kHelp), 0u);
  EXPECT_EQ(finished_table(state, 0, true).rows[0][0], "0/0");
  TopState other = state;
  other.reading.finished[1].wall_s = 99;
  EXPECT_EQ(finished_table(other, 1, true).rows[0][0], "1/0");
  other.processes[1].process.rss_bytes = 1;
  EXPECT_EQ(process_table(other, 1).rows[0][0], "77");
  other.processes[1].cpu_percent = 50;
  EXPECT_EQ(process_table(other, 0).rows[0][0], "78");
}

TEST(TopView, FunctionsByEachOfTheirTimes) {
  const TopState state = example();
  const std::string text = screen(state, options({160, 40}, TopPage::kFunctions));
  EXPECT_THAT(text, HasSubstr("Sampled 99 times a second for 20.0 s: 1,234 samples, 0 lost; "));
  EXPECT_THAT(text,
              ::testing::ContainsRegex("Linear.forward linear.py:125 +- +- +49.0 +49.0 +0.0 "));
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "step train.py:40 +user +0/0 .1 +1.0 +50.0 +0.0 +10.0 +0.20 "));
  EXPECT_THAT(text, HasSubstr("s sort: CPU self %"));
  const char* first[] = {"Linear", "step",  "Queue", "Queue", "Linear",
                         "step",   "Queue", "Queue", "step"};
  for (std::size_t sort = 0; sort < sort_count(TopPage::kFunctions); ++sort)
    EXPECT_THAT(function_table(state, sort).rows[0][0], StartsWith(first[sort])) << sort;
  EXPECT_THAT(screen(state, options({80, 24}, TopPage::kFunctions)),
              AllOf(HasSubstr(" user "), HasSubstr("CPU self %"), HasSubstr("Wait self %")));
  EXPECT_THAT(screen(state, options({40, 10}, TopPage::kFunctions)), HasSubstr("CPU self %"));
}

TEST(TopView, CompiledFunctionsAlone) {
  TopState state = example();
  EXPECT_EQ(function_table(state, kRegionsSort).rows.size(), 1u);
  EXPECT_THAT(screen(state, options({160, 40}, TopPage::kFunctions)), HasSubstr(" Compiled "));
  auto compiled = [&](const char* id, const char* function, const char* failure) {
    state.reading.finished = {finished(id, 1, 1)};
    state.reading.finished[0].function.function = function;
    state.reading.finished[0].failure = failure;
    const auto rows = function_table(state, kRegionsSort).rows;
    return rows.empty() ? "" : rows[0][2];
  };
  EXPECT_EQ(compiled("3/1", "step", ""), "3/1");
  EXPECT_EQ(compiled("backward 3/1", "step", ""), "") << "the backward runs elsewhere";
  EXPECT_EQ(compiled("3/1", "step", "Unsupported"), "");
  EXPECT_EQ(compiled("3/1", "torch_dynamo_resume_in_step_at_41", ""), "");
  TopViewOptions view = options({160, 40}, TopPage::kFunctions);
  view.sort[static_cast<std::size_t>(TopPage::kFunctions)] = kRegionsSort;
  EXPECT_THAT(text_of(top_screen(state, view)),
              AllOf(HasSubstr("No compiled function has run or waited."),
                    HasSubstr("s sort: compiled, CPU all %")));
}

TEST(TopView, AsTextFunctionsComeByCpuAndByWait) {
  const std::string text = top_text(example(), 160);
  const auto cpu = text.find("\nFunctions by CPU self %\n");
  const auto wait = text.find("\nFunctions by wait self %\n");
  ASSERT_NE(wait, std::string::npos);
  EXPECT_LT(text.find("\nLinear.forward", cpu), text.find("\nQueue.get", cpu));
  EXPECT_GT(text.find("\nLinear.forward", wait), text.find("\nQueue.get", wait));
}

TEST(TopView, SaysWhyThereAreNoFunctions) {
  TopReading reading = example_reading(100);
  auto text_with = [&](TopFunctions functions) {
    reading.functions = std::move(functions);
    TopModel model;
    model.add(reading);
    return top_text(model.state(), 100);
  };
  EXPECT_THAT(text_with({}), Not(HasSubstr("Sampl")));
  EXPECT_THAT(text_with({.asked = true}), HasSubstr("\nSampling begins.\n"));
  EXPECT_THAT(text_with({.asked = true, .problems = {"functions are not sampled: missing X"}}),
              AllOf(HasSubstr("\nwarning: functions are not sampled: missing X\n"),
                    Not(HasSubstr("Sampling begins"))));
  EXPECT_THAT(text_with({.asked = true, .begun = true}),
              HasSubstr("\nNo Python function has run or waited.\n"));
}

TEST(TopView, ScrollsAndStopsAtTheEnd) {
  TopReading reading = example_reading(100);
  for (int i = 0; i < 100; ++i) reading.processes.push_back(compiler(1000 + i, 100, 100));
  TopModel model;
  model.add(reading);
  TopViewOptions view = options({80, 24}, TopPage::kProcesses);
  view.sort[static_cast<std::size_t>(TopPage::kProcesses)] = 3;
  EXPECT_THAT(text_of(top_screen(model.state(), view)), Not(HasSubstr("\n1099 ")));
  view.first_row = 10'000;
  EXPECT_THAT(text_of(top_screen(model.state(), view)), HasSubstr("\n1099 "));
  EXPECT_LT(view.first_row, 103u);
  view.page = TopPage::kHelp;
  view.height = 40;
  top_screen(model.state(), view);
  EXPECT_EQ(view.first_row, 0u);
}

TEST(TopView, SaysThatItIsFrozen) {
  TopViewOptions view = options({80, 24});
  view.frozen = true;
  EXPECT_THAT(screen(example(), view), HasSubstr("\nFROZEN"));
  view.height = 5;
  EXPECT_THAT(screen(example(), view), StartsWith("FROZEN Process 100"));
}

TEST(TopTable, LeavesOutTheLeastImportantColumns) {
  TopTable table;
  table.columns = {{.title = "A", .least = 3, .most = 10, .priority = 0},
                   {.title = "B", .least = 3, .most = 10, .priority = 2},
                   {.title = "C", .least = 3, .most = 10, .priority = 1, .right = true}};
  table.rows = {{"aaaaaaaa", "bbbbbbbb", "7"}};
  EXPECT_THAT(table_lines(table, 30), ElementsAre("A        B        C", "aaaaaaaa bbbbbbbb 7"));
  EXPECT_THAT(table_lines(table, 16), ElementsAre("A       B      C", "aaaaaa… bbbbb… 7"));
  EXPECT_THAT(table_lines(table, 8), ElementsAre("A      C", "aaaaa… 7"));
  EXPECT_THAT(table_lines(table, 2), ElementsAre("A", "a…"));
}

TEST(TopTable, WrapsAtSpaces) {
  EXPECT_THAT(wrapped("one two three", 7, 5), ElementsAre("one two", "three"));
  EXPECT_THAT(wrapped("one two three", 7, 1), ElementsAre("one tw…"));
  EXPECT_THAT(wrapped("abcdefghij klm", 5, 5), ElementsAre("abcd…", "klm"));
  EXPECT_THAT(wrapped("", 5, 5), IsEmpty());
  EXPECT_THAT(wrapped("x", 0, 5), IsEmpty());
}

TEST(TopPages, AgesAreShort) {
  EXPECT_EQ(short_age(0), "0.0 s");
  EXPECT_EQ(short_age(59.94), "59.9 s");
  EXPECT_EQ(short_age(185), "3:05");
  EXPECT_EQ(short_age(7380), "2:03:00");
  EXPECT_EQ(short_age(432'000), "5 d");
  EXPECT_EQ(short_age(-1), "-");
}

TEST(TopKeys, TakesWholeKeys) {
  std::string input = "cfpt\ts hqj\x1b[A\x1b[6~\x1b[1;5Cx\x1b";
  EXPECT_THAT(
      take_keys(input),
      ElementsAre(TopKey::kCompiles, TopKey::kFinished, TopKey::kProcesses, TopKey::kFunctions,
                  TopKey::kNextPage, TopKey::kSort, TopKey::kFreeze, TopKey::kHelp, TopKey::kQuit,
                  TopKey::kDown, TopKey::kUp, TopKey::kPageDown));
  EXPECT_EQ(input, "\x1b");
  input += "[";
  EXPECT_THAT(take_keys(input), IsEmpty());
  input += "B";
  EXPECT_THAT(take_keys(input), ElementsAre(TopKey::kDown));
  EXPECT_TRUE(input.empty());
  input = "\x1b[" + std::string(100, '1');
  take_keys(input);
  EXPECT_LT(input.size(), 20u) << "a sequence without an end is given up";
}

}  // namespace
}  // namespace dynprof
