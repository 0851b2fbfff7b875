// The end of the part of the program that needs rights. The rest processes untrusted bytes
// and runs other programs, permanently as a user without rights.
#pragma once

#include <string>

#include "symbolizer/base/result.h"
#include "user/privileges/user_identity.h"

namespace dynprof {

enum class Keep {
  kNothing,
  kReading,  // CAP_DAC_READ_SEARCH: any file may be read until give_up_reading()
};

// Whether root can become another user here: a container may lack CAP_SETUID or CAP_SETGID.
bool can_change_user();

// All threads become `user`, without capabilities, and no program started from here gains any
// (PR_SET_NO_NEW_PRIVS). An error if any part of that failed: do not continue then.
Result<void> become_user(const UserIdentity& user, Keep keep = Keep::kNothing);

// The same without a change of user, for a process that is not root but has capabilities.
Result<void> give_up_capabilities();
Result<void> give_up_reading();

// Becomes the user behind sudo, or the user `nobody` for root without sudo; gives up all capabilities
// where this process is not root, or cannot change users: `note` reports the latter.
Result<void> leave_root(std::string& note, Keep keep_of_plain_root = Keep::kNothing);

// Root without sudo that can become another user.
bool is_plain_root();

}  // namespace dynprof
