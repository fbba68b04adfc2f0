/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_code.h"

#include <assert.h>

#include "fs/base/check.h"
#include "tools/ossd_xml.h"

static const struct ossd_code_info codes[] = {{200, "", "", ""},
#define OSSD_CODE_ROW(name, status, code, ec, message) {status, code, ec, message},
					      OSSD_CODES(OSSD_CODE_ROW)
#undef OSSD_CODE_ROW
};
static_assert(sizeof(codes) / sizeof(*codes) == OSSD_E_N, "one row per code");

const struct ossd_code_info *ossd_code_info(int code)
{
	check(code > OSSD_E_NONE && code < OSSD_E_N);
	return &codes[code];
}

void ossd_error_format(struct buf *out, const struct ossd_code_info *info,
		       const struct ossd_error_doc *doc)
{
	ossd_xml_document(out, "Error");
	ossd_xml_text(out, "Code", info->code);
	ossd_xml_text(out, "Message", doc->message ? doc->message : info->message);
	if (doc->request_id)
		ossd_xml_text(out, "RequestId", doc->request_id);
	if (doc->host_id)
		ossd_xml_text(out, "HostId", doc->host_id);
	if (doc->extra)
		buf_puts(out, doc->extra);
	if (*info->ec)
		ossd_xml_text(out, "EC", info->ec);
	ossd_xml_end(out, "Error");
}
