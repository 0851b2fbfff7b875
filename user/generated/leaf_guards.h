// The texts of the guards that a compiled code's root guard manager calls itself, among them those on symbolic shapes
// ("4 <= L['x'].size()[0]"): one lambda for all of them, which is in no list of the guard manager in Python.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "user/generated/python_objects.h"

namespace dynprof {

// As torch prints them: the condition, and behind "#" the user's line that required it. `manager` is a
// GuardManagerWrapper. Empty where the objects in C++ are not as in torch 2.13.
std::vector<std::string> root_guard_texts(PythonObjects& python, std::uint64_t manager,
                                          std::size_t max_bytes);

}  // namespace dynprof
