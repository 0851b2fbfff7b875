#include "user/cli/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <initializer_list>

namespace dynprof {
namespace {

volatile sig_atomic_t stop_count = 0;

void on_stop(int signal) {
  stop_count = stop_count + 1;
  if (stop_count > 1) {
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
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A full disk or a closed pipe is an error to report, not a reason to die.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

void StopSignals::restore_defaults() {
  for (int number : {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ}) signal(number, SIG_DFL);
}

bool StopSignals::requested() { return stop_count > 0; }

}  // namespace dynprof
