#include "user/unwind_tables/table_pool.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace dynprof {
namespace {

constexpr unsigned kMaxThreads = 8;

std::size_t bytes_of(const TableResult& result) {
  return result.table ? result.table->rows.size() * sizeof(dp_unwind_row) : 0;
}

}  // namespace

TablePool::TablePool(unsigned threads, TableCache* cache, ReadAccounts& accounts)
    : cache_(cache), accounts_(accounts), ready_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  // Signals are for the thread that waits for them.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  for (unsigned i = 0; i < std::clamp(threads, 1u, kMaxThreads); ++i) {
    threads_.emplace_back([this] { work(); });
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TablePool::~TablePool() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    requests_.clear();
  }
  requested_.notify_all();
  taken_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool TablePool::submit(TableRequest& request) {
  {
    const std::lock_guard lock(mutex_);
    if (pending_ >= kMaxRequests) return false;
    ++pending_;
    requests_.push_back(std::move(request));
  }
  requested_.notify_one();
  return true;
}

std::optional<TableResult> TablePool::take_locked() {
  if (results_.empty()) return std::nullopt;
  TableResult result = std::move(results_.front());
  results_.pop_front();
  waiting_bytes_ -= bytes_of(result);
  --pending_;
  if (results_.empty()) {
    std::uint64_t count = 0;
    // Nothing to read means that it was not readable: as wanted.
    [[maybe_unused]] const ssize_t got = ::read(ready_.get(), &count, sizeof count);
  }
  taken_.notify_all();
  return result;
}

std::optional<TableResult> TablePool::take() {
  const std::lock_guard lock(mutex_);
  return take_locked();
}

std::optional<TableResult> TablePool::wait(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  finished_.wait_for(lock, limit, [this] { return !results_.empty() || pending_ == 0; });
  return take_locked();
}

std::size_t TablePool::pending() const {
  const std::lock_guard lock(mutex_);
  return pending_;
}

TableResult TablePool::make(TableRequest& request) const {
  auto reading = accounts_.begin(request.pid);
  UnwindOptions options;
  options.budget = &reading.budget();
  options.debug_files = {request.root.get(), request.path};
  options.cancelled = &cancelled_;
  Result<ByteSource> source = request.file
                                  ? ByteSource::of_file(std::move(request.file))
                                  : Result<ByteSource>(ByteSource::of_bytes(request.image));
  if (!source) return {request.id, source.error(), {}, {}, false};
  source->pay_from(&reading.budget());
  std::string problem;
  const auto began = std::chrono::steady_clock::now();
  auto table = load_or_build(*source, options, cache_, &problem);
  return {request.id, std::move(table), std::chrono::steady_clock::now() - began,
          std::move(problem), reading.budget().refused()};
}

void TablePool::publish(TableResult result) {
  std::unique_lock lock(mutex_);
  const std::size_t bytes = bytes_of(result);
  taken_.wait(lock, [&] {
    return cancelled_ || results_.empty() || waiting_bytes_ + bytes <= kMaxWaitingBytes;
  });
  if (cancelled_) return;
  waiting_bytes_ += bytes;
  results_.push_back(std::move(result));
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(ready_.get(), &one, sizeof one);
  lock.unlock();
  finished_.notify_all();
}

void TablePool::work() {
  ::prctl(PR_SET_NAME, "dynprof-tables");
  for (;;) {
    TableRequest request;
    {
      std::unique_lock lock(mutex_);
      requested_.wait(lock, [this] { return cancelled_ || !requests_.empty(); });
      if (cancelled_) return;
      request = std::move(requests_.front());
      requests_.pop_front();
    }
    publish(make(request));
  }
}

}  // namespace dynprof
