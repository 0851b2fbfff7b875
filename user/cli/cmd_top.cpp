// `top`: what a process compiles and waits for, once a second, on a terminal or as text.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "user/cli/commands.h"
#include "user/cli/standard_streams.h"
#include "user/cli/terminal.h"
#include "user/cli/top_screen.h"
#include "user/functions/function_sampler.h"
#include "user/preflight/capabilities.h"
#include "user/top/reader.h"

namespace dynprof {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kTextColumns = 160;
constexpr std::size_t kLeastColumns = 20;

std::size_t text_columns() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kTextColumns;
  return std::max<std::size_t>(size.ws_col, kLeastColumns);
}

int ended(Terminal& terminal, pid_t pid) {
  terminal.line(fmt::format("process {} has ended", pid));
  return 0;
}

// What is read of a process once, from both sources.
struct TopSources {
  TopReader& reader;
  FunctionSampler& functions;

  std::optional<TopReading> read() {
    auto reading = reader.read();
    if (reading) reading->functions = functions.read();
    return reading;
  }
};

int run_batch(TopSources sources, const TopOptions& options, Terminal& terminal) {
  TopModel model;
  const std::chrono::nanoseconds interval(options.interval_ns);
  Clock::time_point next = Clock::now();
  for (std::uint64_t i = 0; options.iterations == 0 || i < options.iterations; ++i) {
    if (i != 0 && wait_for_quit(next)) return 0;
    next = std::max(next + interval, Clock::now());
    auto reading = sources.read();
    if (!reading) return ended(terminal, options.pid);
    model.add(*std::move(reading));
    const std::string text = (i == 0 ? "" : "\n") + top_text(model.state(), text_columns());
    if (auto printed = print_out(text); !printed) return fail(printed.error());
  }
  return 0;
}

struct Loop {
  TopViewOptions view;
  bool quit = false;

  void turn_to(TopPage page) {
    view.page = page;
    view.first_row = 0;
  }

  void handle(TopKey key) {
    const auto page = static_cast<std::size_t>(view.page);
    const std::size_t screenful = std::max<std::size_t>(1, view.height / 2);
    switch (key) {
      case TopKey::kCompiles:
        return turn_to(TopPage::kCompiles);
      case TopKey::kFinished:
        return turn_to(TopPage::kFinished);
      case TopKey::kProcesses:
        return turn_to(TopPage::kProcesses);
      case TopKey::kFunctions:
        return turn_to(TopPage::kFunctions);
      case TopKey::kHelp:
        return turn_to(view.page == TopPage::kHelp ? TopPage::kCompiles : TopPage::kHelp);
      case TopKey::kNextPage:
        return turn_to(static_cast<TopPage>((page + 1) % kTopPages));
      case TopKey::kSort:
        view.sort[page] = (view.sort[page] + 1) % std::max<std::size_t>(1, sort_count(view.page));
        return;
      case TopKey::kFreeze:
        view.frozen = !view.frozen;
        return;
      case TopKey::kUp:
        view.first_row -= view.first_row > 0 ? 1 : 0;
        return;
      case TopKey::kDown:
        ++view.first_row;
        return;
      case TopKey::kPageUp:
        view.first_row -= std::min(view.first_row, screenful);
        return;
      case TopKey::kPageDown:
        view.first_row += screenful;
        return;
      case TopKey::kQuit:
        quit = true;
        return;
    }
  }
};

int run_screen(TopSources sources, const TopOptions& options, TopScreen& screen,
               Terminal& terminal) {
  TopModel model;
  Loop loop;
  const std::chrono::nanoseconds interval(options.interval_ns);
  Clock::time_point next = Clock::now();
  std::uint64_t shown = 0;
  screen.enter();
  while (!loop.quit) {
    if (Clock::now() >= next) {
      if (!loop.view.frozen || shown == 0) {
        if (options.iterations != 0 && shown == options.iterations) break;
        ++shown;
        auto reading = sources.read();
        if (!reading) {
          screen.leave();
          return ended(terminal, options.pid);
        }
        model.add(*std::move(reading));
      }
      next = std::max(next + interval, Clock::now());
    }
    const TerminalSize size = screen.size();
    loop.view.width = size.columns;
    loop.view.height = size.rows;
    screen.draw(top_screen(model.state(), loop.view), size);
    const TopEvents events = screen.wait(next);
    if (events.quit) break;
    for (TopKey key : events.keys) loop.handle(key);
    if (loop.view.page == TopPage::kFunctions) sources.functions.begin();
  }
  screen.leave();
  return 0;
}

}  // namespace

int run_top(const CommandLine& line) {
  Terminal terminal(line.quiet);
  // With the rights that we have now: later another user's terminal could not be opened.
  std::optional<TopScreen> screen;
  if (!line.top.batch && TopScreen::usable()) screen.emplace();
  FunctionSampler functions(line.top.pid, line.top.user_packages);
  keep_only_reading();
  auto reader = TopReader::open(line.top.pid);
  if (!reader) return fail(reader.error());
  catch_top_signals();
  if (line.top.functions) functions.begin();
  TopSources sources{**reader, functions};
  return screen ? run_screen(sources, line.top, *screen, terminal)
                : run_batch(sources, line.top, terminal);
}

}  // namespace dynprof
