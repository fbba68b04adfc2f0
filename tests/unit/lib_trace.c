/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/lib_trace.h"

#include "tests/unit/test.h"

#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define SYSCALL_STOP (SIGTRAP | 0x80) /* with PTRACE_O_TRACESYSGOOD */

void lib_trace_me(void)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		_exit(6);
	raise(SIGSTOP);
}

/* The signal that a stopped thread goes on with. */
static int signal_for(int status)
{
	int sig = WSTOPSIG(status);

	/* Calls, clone events, and the stop that a new thread begins with are ours. */
	return sig == SYSCALL_STOP || sig == SIGTRAP || sig == SIGSTOP ? 0 : sig;
}

int lib_trace(pid_t pid, uint64_t kill_at, uint64_t *count)
{
	int status;

	*count = 0;
	assert_int_equal(waitpid(pid, &status, __WALL), pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL,
				PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE |
					PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
					PTRACE_O_EXITKILL),
			 0);
	ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
	for (;;) {
		pid_t tid = waitpid(-1, &status, __WALL);

		if (tid < 0 && errno == EINTR)
			continue;
		assert_true(tid > 0);
		if (!WIFSTOPPED(status)) {
			if (tid == pid)
				return status;
			continue;
		}
		if (WSTOPSIG(status) == SYSCALL_STOP && ++*count == kill_at)
			kill(pid, SIGKILL);
		/* Fails for what was killed meanwhile. */
		ptrace(PTRACE_SYSCALL, tid, NULL, (void *)(intptr_t)signal_for(status));
	}
}
