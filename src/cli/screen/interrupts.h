// Ctrl-C.
#pragma once

#include <atomic>
#include <string>

namespace hearth::cli {

// From now on Ctrl-C no longer ends the program: it sets the flag that InterruptFlag returns and
// makes InterruptDescriptor readable. With `also_terminate` the same goes for SIGTERM and, unless
// it is ignored, SIGHUP.
void CatchInterrupts(bool also_terminate = false);
const std::atomic<bool>& InterruptFlag();
// Readable after a Ctrl-C until ClearInterrupt; for those who wait for input. -1 before
// CatchInterrupts.
int InterruptDescriptor();
// Forgets a Ctrl-C that has been acted upon.
void ClearInterrupt();
// After a Ctrl-C throws Error(kCancelled, where) that says that nothing was written.
void StopWhereInterrupted(const std::string& where);

}  // namespace hearth::cli
