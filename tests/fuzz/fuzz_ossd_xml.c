/* SPDX-License-Identifier: Apache-2.0 */
/* Documents that clients send to ossd, and fault programs, taken for each kind in turn. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "fs/base/err.h"
#include "tools/ossd_fault.h"
#include "tools/ossd_xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct ossd_fault_program *program = ossd_fault_program_new();
	struct ossd_part_ref *parts = NULL;
	struct ossd_keys keys = {0};
	struct ossd_faults faults;
	struct buf tags = BUF_INIT, shown = BUF_INIT;
	struct why why = {""};
	char class_name[32];
	size_t count = 0;

	if (ossd_xml_parse_delete(&keys, text, size) == 0 &&
	    (keys.count == 0 || keys.count > OSSD_DELETE_MAX))
		abort();
	ossd_keys_fini(&keys);
	if (ossd_xml_parse_complete(&parts, &count, text, size) == 0 &&
	    (count == 0 || count > OSSD_PARTS_MAX))
		abort();
	free(parts);
	if (ossd_xml_parse_bucket(class_name, sizeof(class_name), text, size) == 0 &&
	    strlen(class_name) >= sizeof(class_name))
		abort();
	if (ossd_xml_parse_tagging(&tags, text, size) == 0)
		ossd_xml_format_tagging(&shown, tags.data ? tags.data : "");
	if (ossd_fault_program_set(program, text, size, &why) == 0) {
		ossd_fault_match(program, "GetObject", "key", &faults);
		ossd_faults_fini(&faults);
		ossd_fault_program_format(program, &shown);
	}
	buf_fini(&tags);
	buf_fini(&shown);
	ossd_fault_program_free(program);
	return 0;
}
