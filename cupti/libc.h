// The little of libc that is used, for any glibc from 2.17 on. What moved between glibc's libraries
// (2.34 merged libpthread and libdl) is bound weakly to its first version: where the process does not
// have it, the library stays off instead of failing to load.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dynprof_cupti {

// All of them return false or nullptr where libc lacks what they need.
bool start_thread(void* (*run)(void*));       // detached, with every signal blocked
void* open_loaded_library(const char* path);  // of a mapped library; it stays mapped for ever
void* open_library(const char* path);         // loads it if need be
void* find_symbol(void* library, const char* name);
bool threads_and_libraries_available();

std::uint64_t monotonic_ns();
std::uint64_t realtime_offset_ns();  // CLOCK_REALTIME - CLOCK_MONOTONIC
std::int32_t thread_id();

// Zeroed memory that costs nothing until it is touched; nullptr when there is none.
void* map_pages(std::size_t bytes);
void unmap_pages(void* address, std::size_t bytes);

// Waits until *word != expected, a wake-up, or the time is over. errno is kept.
void futex_wait(const void* word, std::uint32_t expected, std::uint64_t timeout_ns);
void futex_wake(const void* word);

// The number in an environment variable; `otherwise` where it is unset or no number.
std::uint64_t environment_number(const char* name, std::uint64_t otherwise);
// nullptr where unset, empty, or the process runs with raised privileges.
const char* environment_text(const char* name);

}  // namespace dynprof_cupti
