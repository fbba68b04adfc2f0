/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/check.h"

#include <stdlib.h>

#include "fs/base/log.h"

void check_failed(const char *what, const char *file, int line, const char *function)
{
	log_error("panic check=\"%s\" at=%s:%d in=%s", what, file, line, function);
	abort();
}
