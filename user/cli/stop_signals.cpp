#include "user/cli/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstddef>

namespace dynprof {
namespace {

constexpr std::array kStops = {SIGINT, SIGTERM, SIGHUP};

volatile sig_atomic_t stop_count = 0;
volatile sig_atomic_t at_once = 0;
std::array<struct sigaction, kStops.size()> before = {};

void on_stop(int signal) {
  stop_count = stop_count + 1;
  if (stop_count > 1 || at_once) {
    static const char kMessage[] =
        "\nstopped at once; what was recorded can be read with: "
        "dynprof-bpf report DIR\n";
    (void)!write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
    _exit(128 + signal);
  }
}

}  // namespace

StopSignals::StopSignals() {
  struct sigaction action = {};
  action.sa_handler = on_stop;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kStops.size(); ++i) {
    sigaction(kStops[i], nullptr, &before[i]);
    // Under nohup the terminal may go and the recording is to go on.
    if (kStops[i] == SIGHUP && before[i].sa_handler == SIG_IGN) continue;
    sigaction(kStops[i], &action, nullptr);
  }
  // A file that grows too large is an error to report; the signal would end the program. SIGPIPE is ignored
  // already.
  signal(SIGXFSZ, SIG_IGN);
}

void StopSignals::restore() {
  for (std::size_t i = 0; i < kStops.size(); ++i) sigaction(kStops[i], &before[i], nullptr);
  for (int number : {SIGPIPE, SIGXFSZ}) signal(number, SIG_DFL);
}

bool StopSignals::requested() { return stop_count > 0; }

void StopSignals::end_at_once(bool on) { at_once = on; }

}  // namespace dynprof
